"""The page answers each address, in words where something is wrong, and holds all that it needs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import httpx
import pytest

from persistent import MemorySink, PersistentTask, operations
from persistent.codec.documents import FIRST_FORMAT, FORMAT
from persistent.storage import MemoryStorage
from persistent.tools.serve import Shown, application
from persistent.tools.serve import page as module
from tests.golden.make import GOLDEN, TASKS
from tests.golden.make import pipeline as golden
from tests.tools.serve.jobs import SCRIPT, Each, Visits, corrected, json, page, pipeline, ran, several

ASSETS = Path(__file__).parents[3] / "persistent" / "tools" / "serve" / "assets"


@pytest.fixture(scope="module")
def client() -> httpx.Client:
    return page(ran("app"), Shown("none", "none", MemoryStorage("serve-nowhere")))


@pytest.mark.parametrize("view", sorted(module.VIEWS))
def test_every_view_answers(client: httpx.Client, view: str) -> None:
    """A view would be missing."""
    asked = {"difference": {"from": "4"}, "why": {"key": '["/", "7"]'}}.get(view, {})
    assert "error" not in json(client, f"app/{view}", **asked)


@pytest.mark.parametrize("view", sorted(module.VIEWS))
def test_without_a_checkpoint_every_view_says_so(client: httpx.Client, view: str) -> None:
    """It would be a stack trace, or an empty page."""
    asked = {"difference": {"from": "4"}, "why": {"key": '["/", "7"]'}}.get(view, {})
    said = json(client, f"none/{view}", 409 if view in ("state", "why") else 404, **asked)["error"]
    assert said["kind"] in ("none", "pipeline") and "Traceback" not in said["text"]


@pytest.mark.parametrize("view", sorted(module.VIEWS))
def test_the_checkpoint_of_another_job_is_a_fault_on_every_view(view: str) -> None:
    """Three pipelines that name one relative folder would be three times the same figures, under three names."""
    ran("theirs")
    ours = pipeline("theirs", task=type("Orders", (Visits,), {})())
    shown = page(Shown("ours", "orders.py:pipeline", ours.storage, ours), Shown("url", "url", ours.storage))
    asked = {"difference": {"from": "4"}, "why": {"key": '["/", "7"]'}}.get(view, {})
    said = json(shown, f"ours/{view}", 409, **asked)["error"]
    assert said["kind"] == "other" and "is the checkpoint of another job: its states: ['Visits']" in said["text"]
    assert "Give this pipeline a checkpoint of its own" in said["text"]
    lines = {line["name"]: line for line in json(shown, "jobs")["jobs"]}
    assert lines["ours"]["error"]["kind"] == "other" and "error" not in lines["url"]
    if view == "now":
        assert "error" not in json(shown, "url/now")


def test_a_task_that_has_changed_keeps_its_page() -> None:
    """Whoever edits the task beside a running job would see nothing of the job."""
    ran("edited")
    task = type("Visits", (Each,), {"name": "Visits"})("total", "living")
    edited = pipeline("edited", task=task, sink=None)
    shown = page(Shown("edited", "visits.py:pipeline", edited.storage, edited))
    assert "error" not in json(shown, "edited/now")


@pytest.mark.parametrize(
    "path, status",
    [("app/nothing", 404), ("nobody/now", 404), ("app/manifest?id=999", 404), ("app/manifest?id=x", 400)]
    + [("app/difference", 400), ("app/state?cursor=x", 400), ("app/state?key={", 400), ("app/download?format=x", 400)]
    + [("app/state?at=1&as_of=5", 400), ("app/state?sort=nothing", 400), ("app/state?as_of=never", 400)]
    + [("app/manifest?id=99999999999999999999", 400), ("app/state?window=1970-01-01", 200), ("..%2f..%2fetc/now", 404)],
)
def test_what_is_asked_wrongly_is_said(client: httpx.Client, path: str, status: int) -> None:
    """A mistyped address would be a defect, or show something else."""
    answer = client.get(f"/api/{path}")
    assert answer.status_code == status, answer.text
    assert status == 200 or answer.json()["error"]["text"] or answer.status_code == 404


def test_a_corrupt_checkpoint_is_said(client: httpx.Client) -> None:
    """The page would fail, or show an older checkpoint as the newest."""
    shown = ran("corrupt")
    storage = MemoryStorage("serve-corrupt")
    newest = storage.list("m")[-1]
    storage._files[f"m/{newest}"] = storage._files[f"m/{newest}"].slice(0, 100)
    client = page(Shown("corrupt", "corrupt", shown.storage, shown.pipeline))
    said = json(client, "corrupt/now", 409)["error"]
    assert said["kind"] == "corrupt" and "persistent rollback" in said["text"]
    assert json(client, "jobs")["jobs"][0]["error"]["kind"] == "corrupt"


@pytest.mark.parametrize("number", range(FIRST_FORMAT, FORMAT + 1))
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_checkpoints_of_every_format_are_shown(number: int, task: type[PersistentTask], tmp_path: Path) -> None:
    """A job that has not run since an upgrade could not be looked at."""
    place = tmp_path / f"format-{number}"
    shutil.copytree(GOLDEN / place.name, place)
    made = golden(task(), place)
    client = page(Shown("old", "old", made.storage, made))
    newest = json(client, "old/now")["checkpoint"]["id"]
    for view in ("timeline", "manifest", "kept", "account", "late", "dead", "state", "shape", "storage"):
        assert "error" not in json(client, f"old/{view}"), view
    assert len(json(client, "old/timeline")["checkpoints"]) > 1
    assert "changes" in json(client, "old/difference", **{"from": json(client, "old/kept")["kept"][0][0], "to": newest})


def test_a_defect_is_said_without_its_trace(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users would read our stack, and others its paths."""

    def fails(*_: object) -> None:
        raise RuntimeError("inner detail")

    monkeypatch.setitem(module.VIEWS, "now", fails)  # type: ignore[arg-type]
    answer = client.get("/api/app/now")
    assert answer.status_code == 500 and "inner detail" not in answer.text and "Traceback" not in answer.text
    assert answer.json()["error"]["kind"] == "defect"


def test_hostile_keys_are_data(client: httpx.Client) -> None:
    """They would be markup of the page."""
    answer = client.get("/api/app/state", params={"limit": 500})
    assert answer.headers["content-type"] == "application/json"
    assert SCRIPT in {row[0] for row in answer.json()["rows"]}


def test_the_page_makes_no_markup_from_text() -> None:
    """One innerHTML, and a key is a script."""
    for path in [*ASSETS.glob("*.js"), *ASSETS.glob("*.html")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(inner|outer|Adjacent)HTML|document\.write|\beval\(|new Function", text), path
        assert not re.search(r"\son\w+=|style=|<script>|javascript:", text if path.suffix == ".html" else ""), path


def _light(colour: str) -> float:
    """The relative luminance of ``#rrggbb``, as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_can_be_read(mode: str) -> None:
    """Grey on grey would be read by nobody (WCAG AA: 4.5 for text, 3 for pictures)."""
    light, dark = (ASSETS / "style.css").read_text(encoding="utf-8").split("@media (prefers-color-scheme: dark)")
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light if mode == "light" else dark.split("\n}\n")[0]))

    def contrast(one: str, other: str) -> float:
        bright, dim = sorted((_light(colours[one]), _light(colours[other])), reverse=True)
        return (bright + 0.05) / (dim + 0.05)

    texts = ("ink", "soft", "accent", "good", "warn", "bad", "still")
    assert [one for one in texts for on in ("paper", "card") if contrast(one, on) < 4.5] == []
    assert [one for one in ("ink", "accent") for on in ("faint", "accent-soft") if contrast(one, on) < 4.5] == []
    assert contrast("on-accent", "accent") >= 4.5
    pictures = ("processed", "late", "dead", "duplicate")
    assert [one for one in pictures if contrast(one, "card") < 3] == []


def test_the_page_needs_no_other_server() -> None:
    """Without internet it would be empty, and with it others would see who looks."""
    for path in ASSETS.iterdir():
        found = re.findall(r"(?:https?:)?//[a-z][\w.-]*\.[a-z]{2,}\S*", path.read_text(encoding="utf-8"))
        assert [one for one in found if "www.w3.org" not in one] == [], path


def test_every_import_of_the_page_is_there(client: httpx.Client) -> None:
    """A file that is not shipped would leave the page blank."""
    html = client.get("/").text
    named = set(re.findall(r'"/assets/([\w.-]+)"', html))
    for path in ASSETS.glob("*.js"):
        named |= set(re.findall(r'from "\./([\w.-]+)"', path.read_text(encoding="utf-8")))
    assert named == {path.name for path in ASSETS.iterdir()} - {"index.html"}
    for name in named:
        answer = client.get(f"/assets/{name}")
        assert answer.status_code == 200 and ("javascript" in answer.headers["content-type"]) == name.endswith(".js")
    assert client.get("/assets/..%2f__init__.py").status_code == 404


def test_assets_are_part_of_the_package() -> None:
    """An installed page would have none."""
    setup = (ASSETS.parents[3] / "setup.cfg").read_text(encoding="utf-8")
    assert "persistent.tools.serve = assets/*" in setup and "    persistent.tools.serve\n" in setup


def test_a_url_with_a_secret_is_shown_without_it() -> None:
    """A password would stand in every page."""
    shown = ran("secret")
    storage = MemoryStorage("serve-secret")
    storage.url = "s3://me:pass@bucket/serve-secret"
    client = page(Shown("secret", "s3://me:pass@bucket/serve-secret", storage))
    for path in ("jobs", "secret/now", "secret/state", "secret/manifest", "secret/manifest?id=999", "secret/storage"):
        assert "pass@" not in client.get(f"/api/{path}").text, path
    assert shown.pipeline is not None


def test_one_verification_at_a_time() -> None:
    """Each reload would read every byte once more."""
    client = page(ran("verifying"))
    assert "event: verified" in client.get("/api/verifying/verify").text
    assert "event: verified" in client.get("/api/verifying/verify").text


def test_a_download_has_a_name(client: httpx.Client) -> None:
    """A browser would show it, as a page of this origin."""
    answer = client.get("/api/app/download", params={"format": "csv"})
    assert answer.headers["content-disposition"].startswith('attachment; filename="app-')
    assert answer.text.splitlines()[0].startswith('"page","shop"')


def test_no_job_is_no_error() -> None:
    """An empty list would break the page."""
    assert json(page(), "jobs") == {"jobs": []}
    assert callable(application({}))


@pytest.mark.parametrize("view", sorted(module.VIEWS))
def test_every_view_answers_for_several_states_and_corrections(view: str) -> None:
    """A job of several states, or one that was corrected, would be an error page."""
    shown = several("all"), corrected("ticket")
    client = page(*shown, Shown("bare", "bare", shown[0].storage))
    asked = {"difference": {"from": "4", "values": "1"}, "why": {"key": '["/", "7"]'}}.get(view, {})
    for job in ("all", "ticket"):
        assert "error" not in json(client, f"{job}/{view}", **asked)
    if view not in ("state", "why"):
        assert "error" not in json(client, f"bare/{view}", **{**asked, "values": "1"})
    if view in ("state", "why", "difference"):
        names = [json(client, f"all/{view}", name=name, **asked) for name in ("minutes", "living")]
        assert [one.get("values", one)["name"] for one in names] == ["minutes", "living"]
        assert "has the states minutes, living" in json(client, f"all/{view}", 400, name="x", **asked)["error"]["text"]


def test_states_that_come_and_go() -> None:
    """A checkpoint from before a state was added, or with one that was dropped, would be an error page."""
    first = several("come")
    operations.rollback(first.storage, 6, outputs="again")
    sinks = {"minutes": MemorySink(), "total": MemorySink()}
    made = pipeline("come", task=Each("total", "minutes"), sink=sinks, allow_dropped=["Each/living"])
    made.run(engine="embedded")
    client = page(Shown("come", "come", made.storage, made))
    newest = json(client, "come/now")["checkpoint"]["id"]
    for at, name in ((4, "minutes"), (newest, "total")):
        assert json(client, "come/state", at=at)["name"] == name
        for view in ("account", "shape", "storage"):
            assert json(client, f"come/{view}", at=at)["id"] == at
        assert "sink minutes" in {one["name"] for one in json(client, "come/manifest", id=at)["words"]}
    said = json(client, "come/state", 404, at=4, name="total")["error"]["text"]
    assert "is from before the state 'total' was added" in said
    assert json(client, "come/difference", **{"from": 4, "to": newest, "values": 1})["values"]["name"] == "minutes"
