"""What a place names: a path, a file URL, or a store; and what is refused rather than guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monoids import Count
from persistent import FileSink, FileSource, MemorySource, NonWindowState, PersistentTask, Pipeline
from persistent.connect.files.listing import Files, _connect
from persistent.connect.files.walk import Listed
from persistent.errors import InvalidPipeline, UnsupportedStore
from persistent.storage import LocalStorage, open_storage
from persistent.storage.places import local_path

NAMES = ["plain", "a b", "a#b", "a?b", "100%", "%20", "a;b=c", "é ß", "a&b", "c:d"]


class Visits(PersistentTask):
    key = "page"

    def persistent_state(self):
        return NonWindowState(Count())

    def process_message(self, state, message):
        state.update(message.timestamp, 1)


def pipeline(checkpoint: str, rows: int) -> Pipeline:
    """A pipeline of its own number of rows."""
    source = MemorySource([{"ts": row, "page": "a"} for row in range(rows)], timestamp="ts")
    return Pipeline(source=source, task=Visits(), checkpoint=checkpoint)


@pytest.mark.parametrize("name", NAMES)
def test_a_url_of_a_path_is_that_path(tmp_path: Path, name: str) -> None:
    """Two names would be one folder: two pipelines shared a checkpoint, and the second counted nothing."""
    path = tmp_path / name
    for prefix in ("file://", "file://localhost", "file:", "FILE://"):
        url = prefix + path.as_uri().removeprefix("file://")
        assert local_path(url) == str(path)
        assert open_storage(url).url == str(path)
    assert local_path(str(path)) == str(path)
    assert FileSink(path.as_uri()).url == str(path)
    path.mkdir()
    (path / "x.jsonl").write_bytes(b"{}")
    for place in (str(path), path.as_uri()):
        if "?" not in name:
            assert Files(place).list() == [Listed("x.jsonl", 2)]


def test_pipelines_of_different_urls_do_not_share_a_checkpoint(tmp_path: Path) -> None:
    """The second would find the first one's input read, and count nothing."""
    for number, name in enumerate(NAMES):
        one = pipeline((tmp_path / name).as_uri(), number + 1)
        assert one.run(engine="embedded").rows == number + 1
    assert len(list(tmp_path.iterdir())) == len(NAMES)
    for name in ("a#1", "a#2", "a?1", "a?2"):
        with pytest.raises(InvalidPipeline):
            pipeline(f"file://{tmp_path}/{name}", 1).run(engine="embedded")


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("file:///data/a#b", r"%23.*the path /data/a#b$"),
        ("file:///data/a?b", r"%3F.*the path /data/a\?b$"),
        ("file:///data/a?", "%3F"),
        ("file://far/data", r"host 'far'.*file:///.*without file://, the path$"),
        ("file://localhost:80/data", "host 'localhost:80'"),
        ("file://data", "host 'data'"),
        ("file://", "host ''"),
        ("file:///data/100%", "%25"),
        ("file:///data/%zz", "%25"),
        ("file:///a%2Fb", "'/'"),
        ("file:///a%00b", "cannot be part of a name"),
        ("file:///a%ff", "UTF-8"),
        ("dbfs:/data", r"/dbfs/data.*dbfs://.*\./dbfs:/data"),
        ("s3:/bucket/x", r"s3://.*\./s3:/bucket/x"),
        ("hdfs:/x", "hdfs://"),
        ("s3://bucket/a\tb", "control character"),
        (" s3://bucket/ck", "blank: remove it.*absolute path"),
        ("s3://bucket/ck ", "blank"),
        ("ck\n", "blank"),
        ("s3:bucket/ck", r"s3://.*\./s3:bucket/ck"),
        ("S3a:ck", r"S3a://.*\./S3a:ck"),
        ("dbfs:data", r"/dbfs/data\..*dbfs://"),
        ("file:rel/ck", r"path without file:, or file:///"),
        ("simplecache::s3://bucket/ck", r"simplecache::.*the URL after it.*\./simplecache::s3"),
        ("filecache::file:///x", "filecache::.*the URL after it"),
        ("simplecache::s3://user:secret@bucket/ck", r"^simplecache::s3://bucket/ck: .*\./simplecache::s3://bucket/ck$"),
        (" s3://user:secret@bucket", r"' s3://bucket'"),
        ("a::b", r"\./a::b"),
    ],
)
def test_what_may_mean_another_place_is_refused(
    place: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be a place that nobody meant: the folder above, one of this machine, or a new one here."""
    monkeypatch.chdir(tmp_path)
    for use in (open_storage, FileSink, lambda place: pipeline(place, 1)):
        with pytest.raises(InvalidPipeline, match=told):
            use(place)
    if place not in ("file:///data/a?b", "file:///data/a?"):
        with pytest.raises(InvalidPipeline):
            FileSource(place, timestamp="ts")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["./s3:x", "./a::b", "c:d", "2024:s3", "x y", "a/s3:x", "{}/x "])
def test_names_that_look_like_a_url_are_names_after_a_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedies that the errors name would be none."""
    monkeypatch.chdir(tmp_path)
    name = name.format(tmp_path)
    assert local_path(name) == name
    assert open_storage(name).url == str(tmp_path / name)
    assert local_path(open_storage(name).url) == open_storage(name).url


@pytest.mark.parametrize("url", ["s3://bucket/a?", "s3://bucket/a#", "hdfs://namenode/a#b", "s3://[bucket/a"])
def test_a_store_has_one_url_for_a_folder(url: str) -> None:
    """What follows a '#' or '?' is lost on the way: ``a`` and ``a?`` would be one checkpoint."""
    with pytest.raises(UnsupportedStore):
        open_storage(url)


def test_a_pattern_in_a_file_url_is_a_pattern(tmp_path: Path) -> None:
    """``?`` is a wildcard of every source; a coded one would read more files than the URL names."""
    (tmp_path / "in put").mkdir()
    for name in ("a1.jsonl", "a2.jsonl", "b1.jsonl"):
        (tmp_path / "in put" / name).write_bytes(b"{}")
    files = Files(f"file://{tmp_path}/in%20put/a?.jsonl")
    assert [file.path for file in files.list()] == ["a1.jsonl", "a2.jsonl"]
    for coded in ("%3F", "%2A", "%2a"):
        with pytest.raises(InvalidPipeline, match="cannot be part of a name"):
            Files(f"file://{tmp_path}/in%20put/a{coded}.jsonl")


def test_what_looks_like_a_url_and_is_a_path_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint in such a folder would be out of reach."""
    monkeypatch.chdir(tmp_path)
    for place in ("./dbfs:/data", "2024-01-01T10:00/x", "a/b://c", "job:v2"):
        storage = open_storage(place)
        assert isinstance(storage, LocalStorage)
        assert storage.url == os.path.abspath(place)


def test_hdfs_keeps_the_whole_name_of_a_file() -> None:
    """hdfs-native takes a path for a URL: ``a#1`` and ``a#2`` would both be ``a``, one read for the other."""
    system = _connect("hdfs://namenode:8020/logs")
    for name in ("a#1.jsonl", "a?b", "a;b", "a%20b", ""):
        for path in (f"hdfs://namenode:8020/{name}", f"/{name}"):
            assert system._strip_protocol(path) == f"/{name}"
