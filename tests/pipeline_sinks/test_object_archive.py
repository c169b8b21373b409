"""The archive in an object store, over a real server of S3: each event once, whatever is cut short or killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem
from tests.pipeline_sinks.harness import edge_batch, event, pipeline_of, sink_of
from tests.support.s3 import BUCKET, IDENTITY, S3Server, running_s3

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.plan.stores import StoreRef
from logboom.pipeline.sinks.parquet import ParquetSink, object_archive, staging
from logboom.pipeline.sinks.parquet.object_archive import ObjectArchive, try_store
from logboom.pipeline.sinks.parquet.staging import ArchiveWriter, Report
from logboom.pipeline.sinks.parquet.stores import open_store

SINK = ParquetSink(name="archive", line=1, inputs=("e",), path="s3://logs/app")
STEPS = 14


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patched:
        for name, value in IDENTITY.items():
            patched.setenv(name, value)
        yield server


def _store(s3: S3Server, prefix: str) -> StoreRef:
    return StoreRef(url=f"s3://{BUCKET}/{prefix}", endpoint=s3.endpoint, region="us-east-1")


def _staged(archive: ObjectArchive, number: int, events: list[dict[str, Any]]) -> Report:
    writer = ArchiveWriter(
        sink=SINK,
        root=archive.root,
        staging=archive.staging_for(number),
        label=f"x-{number}",
        high_water=archive.state.high_water,
        retried=archive.state.retried,
        store=archive.store,
    )
    (answer,) = writer([edge_batch(events)])
    return msgspec.json.decode(answer.column("report")[0].as_py(), type=Report)


def _deliver(archive: ObjectArchive, number: int, events: list[dict[str, Any]]) -> Report:
    report = _staged(archive, number, events)
    archive.commit(number, [report])
    return report


def _ids(store: StoreRef) -> Counter[str]:
    """How often each event is there for any reader of Parquet."""
    files, root = open_store(store)
    return Counter(pq.read_table(root, filesystem=files, columns=["event_id"]).column("event_id").to_pylist())


def _three_hours(first: int) -> list[dict[str, Any]]:
    return [event(first + at, time=f"2026-11-23T{7 + at:02}:00:00Z") for at in range(3)]


@pytest.mark.slow
class TestServer:
    def test_events_are_there_once_in_a_directory_for_each_hour(self, s3: S3Server) -> None:
        store = _store(s3, "hours/app")
        archive = ObjectArchive(store, "me")
        first = _deliver(archive, 0, _three_hours(0))
        assert (first.rows, len(first.files)) == (3, 3)
        again = _deliver(ObjectArchive(store, "me"), 1, [event(2), event(3), event(3)])
        assert (again.rows, again.repeats) == (1, 2)
        assert _ids(store) == Counter({f"web:0:{number}": 1 for number in range(4)})
        found = sorted(
            str(path.relative_to(s3.bucket / "hours/app").parent) for path in s3.bucket.rglob("hours/**/*.parquet")
        )
        assert found == [f"date=2026-11-23/hour={hour}" for hour in ("07", "07", "08", "09")]
        assert not list(s3.bucket.rglob("*.staged"))

    def test_what_is_staged_is_seen_by_no_reader_and_removed_at_the_next_start(self, s3: S3Server) -> None:
        store = _store(s3, "staged")
        archive = ObjectArchive(store, "me")
        _deliver(archive, 0, [event(0)])
        _staged(archive, 1, [event(1)])
        assert _ids(store) == Counter({"web:0:0": 1})
        assert ObjectArchive(store, "me").state.batch == 0
        assert not list(s3.bucket.rglob("staged/**/*.staged"))

    @pytest.mark.parametrize("at", range(STEPS))
    def test_a_commit_cut_short_anywhere_is_finished_or_undone(
        self, s3: S3Server, monkeypatch: pytest.MonkeyPatch, at: int
    ) -> None:
        store = _store(s3, f"cut-{at}")
        archive = ObjectArchive(store, "me")
        _deliver(archive, 0, [event(0)])
        report = _staged(archive, 1, _three_hours(1))
        with monkeypatch.context() as patched:
            patched.setattr(archive, "_files", _Cut(archive._files, at))
            patched.setattr(object_archive, "_REQUESTS_AT_ONCE", 1)
            with suppress(CutError):
                archive.commit(1, [report])
        again = ObjectArchive(store, "me")
        if again.state.batch < 1:
            assert _ids(store) == Counter({"web:0:0": 1})
            _deliver(again, 1, _three_hours(1))
        assert _ids(store) == Counter({f"web:0:{number}": 1 for number in range(4)})

    def test_a_server_that_is_killed_loses_nothing(self, s3: S3Server) -> None:
        store = _store(s3, "killed")
        archive = ObjectArchive(store, "me")
        _deliver(archive, 0, [event(0)])
        report = _staged(archive, 1, [event(1)])
        s3.kill9()
        with pytest.raises(OSError, match="connect"):
            archive.commit(1, [report])
        s3.start()
        again = ObjectArchive(store, "me")
        assert again.state.batch == 0
        _deliver(again, 1, [event(1)])
        assert _ids(store) == Counter({"web:0:0": 1, "web:0:1": 1})

    def test_check_connect_writes_and_removes_a_small_object(
        self, s3: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        try_store(_store(s3, "connect"))
        assert not [path for path in s3.bucket.rglob("connect/**/*") if path.is_file()]
        with pytest.raises(OSError, match=r"(?i)bucket"):
            try_store(StoreRef(url="s3://nowhere/x", endpoint=s3.endpoint, region="us-east-1"))
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired-secret")
        open_store.cache_clear()
        with pytest.raises(OSError, match="AWS Error") as refused:
            try_store(_store(s3, "expired"))
        open_store.cache_clear()
        assert "expired-secret" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("is_staged", [False, True])
def test_a_credential_that_expires_within_an_attempt_loses_nothing(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, is_staged: bool
) -> None:
    """While tasks write, or between that and the commit; and the next attempt has the credential as it is then."""
    store = _store(s3, f"expiring-{is_staged}")
    archive = ObjectArchive(store, "me")
    _deliver(archive, 0, [event(0)])
    report = _staged(archive, 1, _three_hours(1)) if is_staged else None
    renewed = f"renewed-secret-{is_staged}"
    s3.expire(renewed)
    try:
        with pytest.raises(OSError, match="AWS Error") as refused:
            archive.commit(1, [report or _staged(archive, 1, _three_hours(1))])
        assert IDENTITY["AWS_SECRET_ACCESS_KEY"] not in str(refused.value)
        assert not _delivered(archive, 1, _three_hours(1)), "it stays expired"
        with monkeypatch.context() as patched:
            patched.setenv("AWS_SECRET_ACCESS_KEY", renewed)
            assert _delivered(archive, 1, _three_hours(1))
            assert _delivered(archive, 2, [event(4)])
            assert _ids(store) == Counter({f"web:0:{number}": 1 for number in range(5)})
    finally:
        s3.expire(IDENTITY["AWS_SECRET_ACCESS_KEY"])


class CutError(Exception):
    """The process ends here."""


class _Cut:
    """A file system whose process ends at its `at`th request that changes something."""

    def __init__(self, files: Any, at: int) -> None:
        self._files = files
        self._steps = iter(range(1_000))
        self._at = at

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._files, name)

        def step(*arguments: Any, **named: Any) -> Any:
            if next(self._steps) == self._at:
                raise CutError
            return real(*arguments, **named)

        return step


class _Bucket:
    """A store in a directory."""

    def __init__(self) -> None:
        self._files = LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_output_stream(self, path: str) -> Any:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return self._files.open_output_stream(path)

    def copy_file(self, source: str, target: str) -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        self._files.copy_file(source, target)


class _Failing:
    """A store whose requests fail from the `at`th on until `mend`; `is_done`: that one was carried out first."""

    def __init__(self, files: Any, at: int, *, is_done: bool) -> None:
        self.mend = files
        self._steps = iter(range(1_000))
        self._at = at
        self._is_done = is_done

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.mend, name)

        def step(*arguments: Any, **named: Any) -> Any:
            number = next(self._steps)
            if number > self._at or (number == self._at and not self._is_done):
                raise OSError("503 Slow Down")
            if number == self._at and name == "open_output_stream":
                return _Doubtful(real(*arguments, **named))
            done = real(*arguments, **named)
            if number == self._at:
                raise OSError("503 Slow Down")
            return done

        return step


class _Doubtful:
    """An object that is written whole, though the answer never comes."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __enter__(self) -> Any:
        return self._file.__enter__()

    def __exit__(self, *_: object) -> None:
        self._file.close()
        raise OSError("the answer did not come in time")


def _delivered(archive: ObjectArchive, number: int, events: list[dict[str, Any]]) -> bool:
    """As the delivery does it; False where the attempt failed and is to be made again."""
    try:
        archive.settle()
        if number > archive.state.batch:
            _deliver(archive, number, events)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", range(STEPS))
def test_a_store_that_fails_anywhere_in_a_commit_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_done: bool, is_killed: bool
) -> None:
    """The attempt is made again in the same process, or that is killed while the tasks of the next attempt write."""
    store = StoreRef(url="s3://logs/app")
    monkeypatch.setattr(object_archive, "open_store", lambda _: (_Bucket(), str(tmp_path)))
    monkeypatch.setattr(staging, "open_store", lambda _: (_Bucket(), str(tmp_path)))
    monkeypatch.setattr(object_archive, "_REQUESTS_AT_ONCE", 1)
    archive = ObjectArchive(store, "me")
    _deliver(archive, 0, [event(0)])
    files: Any = archive._files
    archive._files = cast("Any", _Failing(files, at, is_done=is_done))
    _delivered(archive, 1, _three_hours(1))
    archive._files = files
    if is_killed and archive.state.batch < 1:
        _staged(archive, 1, _three_hours(1))
        archive = ObjectArchive(store, "me")
    assert _delivered(archive, 1, _three_hours(1))
    assert _delivered(archive, 2, [event(4)])
    ObjectArchive(store, "me")
    found = pq.read_table(tmp_path, columns=["event_id"]).column("event_id").to_pylist()
    assert Counter(found) == Counter({f"web:0:{number}": 1 for number in range(5)})


def test_a_path_in_a_store_is_told_from_one_of_the_machine(tmp_path: Path) -> None:
    sink = sink_of("type: parquet, path: 's3://logs/app/', endpoint: 'http://127.0.0.1:9000', region: eu-central-1")
    assert sink.store == StoreRef(url="s3://logs/app", endpoint="http://127.0.0.1:9000", region="eu-central-1")
    assert (sink.interval_ms, sink.output_directory) == (60_000, None)
    local = sink_of(f"type: parquet, path: '{tmp_path}', interval: 5s")
    assert (local.interval_ms, local.output_directory) == (5_000, str(tmp_path))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("path: 's3://logs'", "should be a bucket and a prefix"),
        ("path: 's3://id:secret-word@logs/app'", "has more than a bucket and a prefix"),
        ("path: 's3://logs/a//b'", "has an empty name"),
        ("path: 's3://logs/a/../b'", "has an empty name, '.' or '..'"),
        ("path: './x', endpoint: 'http://h:1'", "goes with a path that begins with s3://"),
        ("path: 's3://logs/app', endpoint: 'h:1'", "is not http://HOST:PORT"),
        ("path: 'ftp://logs/app'", "is a URL (ftp:)"),
    ],
)
def test_what_is_wrong_with_a_store_is_told(keys: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(pipeline_of(f"type: parquet, {keys}"), "p.yaml")
    assert words in str(caught.value)
    assert "secret-word" not in str(caught.value)


def test_two_archives_share_no_place_in_a_store() -> None:
    text = pipeline_of("type: parquet, path: 's3://logs/app'")
    text += "  two: {inputs: [parsed], type: parquet, path: 's3://logs/app/inner'}\n"
    text += "  three: {inputs: [parsed], type: parquet, path: 's3://logs/app2'}\n"
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(text, "p.yaml")
    (problem,) = caught.value.problems
    assert "uses the same location as the sink 'out'" in problem.message
