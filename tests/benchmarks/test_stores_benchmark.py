"""The benchmark of stores runs, small, on real servers; and its plain side makes the same requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import stores


@pytest.mark.slow
@pytest.mark.parametrize("store", stores.STORES)
def test_stores(store: str, tmp_path: Path) -> None:
    """Without it the figures of HDFS and S3 could rot."""
    words = ["--cache", str(tmp_path), "--stores", store, "--steps", "3", "--step-rows", "2000", "--runs", "1"]
    result = CliRunner().invoke(stores.main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    line = json.loads(result.output.splitlines()[-1])
    values = {figure["name"]: figure["value"] for figure in line["figures"]}
    assert values[f"{store}: ours / plain"] > 0
    assert values[f"{store}: runs a step"] >= 1
    # A plan, a manifest and a look at the log at least: fewer would mean that not all were seen.
    assert values[f"{store}: requests a step, without runs"] >= 3


@pytest.mark.parametrize("store", stores.STORES)
def test_the_plain_side_makes_the_same_requests(store: str) -> None:
    """Without it the ratio could be one to a client that does less, or more."""
    verbs = (
        ("write", "rename", "list_status", "read", "delete") if store == "hdfs" else ("PUT", "LIST", "GET", "DELETE")
    )
    asked = [stores.Request(verb, _path(verb), 100 if verb in ("write", "PUT") else 0) for verb in verbs]
    with stores.served(store) as served:
        served.requests("")
        served.repeat(asked, "plain")
        seen = served.requests("plain") if store == "s3" else SEEN.pop()
    assert [(one.verb, one.path, one.bytes) for one in seen] == [(one.verb, one.path, one.bytes) for one in asked]


SEEN: list[list[stores.Request]] = []


@pytest.fixture(autouse=True)
def _keep_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain side of HDFS looks at its own requests, for the waits: they are kept here."""
    waited = stores.waited
    monkeypatch.setattr(stores, "waited", lambda requests: SEEN.append(list(requests)) or waited(requests))


def _path(verb: str) -> str:
    if verb == "rename":
        return "/d/a /d/b"
    return "/d/" if verb in ("LIST", "list_status") else "/d/a" if verb in ("write", "PUT") else "/d/b"
