"""The sink `file`: whole lines, each event once, whatever is repeated, cut short or refused by the disk."""

import errno
import gzip
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pytest

from logboom.base.settings import SettingsError
from logboom.pipeline.checkpoint import checked
from logboom.pipeline.checkpoint.files import write_durably
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.sinks.file import FileSink, appending
from logboom.pipeline.sinks.file.appending import LineFiles
from logboom.pipeline.sinks.file.lines import LinesReport, LineWriter
from logboom.pipeline.sinks.file.paths import filled

SINK = FileSink(name="out", line=1, inputs=("e",), path="out/app.jsonl")
NOON = 1_795_435_200.0  # 2026-11-23T12:00:00Z


def _event(offset: int, **more: object) -> bytes:
    event = {
        "attributes": {"n": offset},
        "time": "2026-11-20T12:30:00.25Z",
        "event_id": f"web-0-{offset}",
        "source": "web",
        "stream": "web",
        "partition": 0,
        "offset": offset,
        "body": f"line {offset}",
        **more,
    }
    return json.dumps(event).encode()


def _batch(values: list[bytes]) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["_p.e"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


class Opened:
    """The files of a sink below a directory, opened anew where a test kills the process."""

    def __init__(self, root: Path, sink: FileSink = SINK, now: float = NOON) -> None:
        self.root = root
        self.sink = sink
        self.now = now
        self.notes: list[str] = []
        self.open()

    def open(self) -> None:
        directory = self.root / "checkpoint"
        self.files = LineFiles(
            self.sink, directory, resolve=self.root.joinpath, now=lambda: self.now, notify=self.notes.append
        )

    def deliver(self, batch: int, values: list[bytes]) -> LinesReport:
        report = self.staged(values)
        self.files.commit(batch, [report])
        return report

    def staged(self, values: list[bytes]) -> LinesReport:
        writer = LineWriter(sink=self.sink, staging=self.files.staging(), seen=self.files.seen)
        (answer,) = writer([_batch(values)])
        return msgspec.json.decode(answer.column("report")[0].as_py(), type=LinesReport)

    def lines(self, pattern: str = "out/*") -> list[str]:
        found = []
        for path in sorted(self.root.glob(pattern)):
            data = path.read_bytes()
            assert data.endswith(b"\n"), f"{path} ends within a line"
            found += [json.loads(line)["event_id"] for line in data.splitlines()]
        return found


def test_events_are_lines_and_repeats_are_left_out(tmp_path: Path) -> None:
    out = Opened(tmp_path)
    out.deliver(0, [_event(0), _event(1), _event(0), _event(1)])
    out.open()
    report = out.deliver(1, [_event(1), _event(2)])
    assert (report.rows, report.repeats) == (1, 1)
    assert out.lines() == ["web-0-0", "web-0-1", "web-0-2"]
    assert (tmp_path / "out" / "app.jsonl").read_bytes().startswith(_event(0) + b"\n")


def test_bodies_alone_and_parts_of_a_path(tmp_path: Path) -> None:
    sink = msgspec.structs.replace(SINK, path="out/{service}/{date}-{hour}.log", encoding="body")
    events = [_event(0, service="a"), _event(1, service="../b", time="2026-11-20T13:00:00Z"), _event(2, time=None)]
    Opened(tmp_path, sink).deliver(0, [*events, _event(3, service="a", body=None)])
    found = {str(path.relative_to(tmp_path / "out")): path.read_text() for path in (tmp_path / "out").rglob("*.log")}
    assert found == {
        "a/2026-11-20-12.log": "line 0\n\n",
        "%2E.%2Fb/2026-11-20-13.log": "line 1\n",
        "none/none-none.log": "line 2\n",
    }


def test_a_long_or_hostile_value_leads_to_a_name_that_a_disk_takes() -> None:
    long = filled("{host}", {"host": "é" * 5_000})
    assert len(long.encode()) <= 200
    assert long != filled("{host}", {"host": "é" * 5_001})
    for hostile in ("..", "/etc/passwd", "a\0b", ".", ""):
        name = filled("{host}", {"host": hostile})
        assert "/" not in name
        assert "\0" not in name
        assert name not in (".", "..", "")


def test_several_long_values_lead_to_a_name_that_a_disk_takes(tmp_path: Path) -> None:
    """Each of them would be short enough; the batch failed for ever."""
    sink = msgspec.structs.replace(SINK, path="{service}-{host}/{host}-{service}-{stream}.jsonl", rotate_bytes=65_536)
    hosts = [f"{'h' * 200}{number}" for number in range(2)]
    given = [_event(number, service="s" * 300, host=host) for number, host in enumerate(hosts)]
    Opened(tmp_path, sink).deliver(0, given)
    found = [path for path in tmp_path.rglob("*.jsonl") if path.is_file()]
    assert len({path.relative_to(tmp_path).parts[0] for path in found}) == len(found) == len(hosts)
    assert max(len(part) for path in found for part in path.relative_to(tmp_path).parts) <= 225


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compressed_files_are_read_by_the_usual_tools(tmp_path: Path, compression: Any) -> None:
    out = Opened(tmp_path, msgspec.structs.replace(SINK, compression=compression))
    out.deliver(0, [_event(0)])
    out.deliver(1, [_event(1), _event(2)])
    path = tmp_path / "out" / "app.jsonl"
    if compression == "gzip":
        text = gzip.decompress(path.read_bytes())
    else:
        with pa.input_stream(str(path), compression="zstd") as stream:
            text = stream.read()
    assert [json.loads(line)["offset"] for line in text.splitlines()] == [0, 1, 2]


def test_files_are_moved_aside_by_size_and_age_and_the_oldest_are_removed(tmp_path: Path) -> None:
    sink = msgspec.structs.replace(SINK, rotate_bytes=300, keep_files=2)
    out = Opened(tmp_path, sink)
    for batch in range(5):
        out.deliver(batch, [_event(2 * batch), _event(2 * batch + 1)])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "app-20261123T120000Z-3.jsonl",
        "app-20261123T120000Z-4.jsonl",
        "app.jsonl",
    ]
    assert sorted(out.lines()) == [f"web-0-{number}" for number in range(4, 10)]

    daily = Opened(tmp_path / "daily", msgspec.structs.replace(SINK, rotate_every_ms=86_400_000))
    daily.deliver(0, [_event(0)])
    os.utime(tmp_path / "daily" / "out" / "app.jsonl", (NOON, NOON))
    daily.deliver(1, [_event(1)])
    daily.now += 86_400
    os.utime(tmp_path / "daily" / "out" / "app.jsonl", (NOON, NOON))
    daily.deliver(2, [_event(2)])
    assert [len(path.read_bytes().splitlines()) for path in sorted((tmp_path / "daily" / "out").iterdir())] == [2, 1]


def test_a_file_of_somebody_else_is_added_to_only_where_it_ends_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "app.jsonl").write_bytes(b'{"event_id": "theirs"}\n')
    out = Opened(tmp_path)
    out.deliver(0, [_event(0)])
    assert out.lines() == ["theirs", "web-0-0"]

    other = Opened(tmp_path / "other")
    (tmp_path / "other" / "out").mkdir()
    (tmp_path / "other" / "out" / "app.jsonl").write_bytes(b"half a li")
    other.deliver(0, [_event(0)])
    assert other.lines("out/app.jsonl") == ["web-0-0"]
    assert (tmp_path / "other" / "out" / "app-20261123T120000Z.jsonl").read_bytes() == b"half a li"


class CrashError(Exception):
    """The process ends here."""


def _crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ends the process at the `at`th step; a copy is cut short after some bytes."""
    steps = iter(range(1_000))

    def stepping(real: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **named: object) -> object:
            if next(steps) == at:
                raise CrashError
            return real(*arguments, **named)

        return step

    def copy(source: BinaryIO, target: BinaryIO, size_bytes: int) -> None:
        if next(steps) == at:
            target.write(source.read(size_bytes // 2))
            target.flush()
            raise CrashError
        real_copy(source, target, size_bytes)

    real_copy = appending._copy
    for name in ("write_durably", "write_checked", "sync_dir", "make_dir"):
        monkeypatch.setattr(appending, name, stepping(getattr(appending, name)))
    monkeypatch.setattr(appending, "_copy", copy)
    monkeypatch.setattr(Path, "rename", stepping(Path.rename))
    monkeypatch.setattr(Path, "unlink", stepping(Path.unlink))


@pytest.mark.parametrize("at", range(28))
def test_a_commit_cut_short_anywhere_is_finished_or_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    sink = msgspec.structs.replace(SINK, path="out/{service}.jsonl", rotate_bytes=500)
    out = Opened(tmp_path, sink)
    out.deliver(0, [_event(0, service="a"), _event(1, service="a"), _event(2, service="a"), _event(3, service="b")])
    more = [_event(number, service="abc"[number % 3]) for number in range(4, 12)]
    report = out.staged(more)
    with monkeypatch.context() as patched:
        _crashing(patched, at)
        with suppress(CrashError):
            out.files.commit(1, [report])
    out.open()
    if out.files.seen.batch < 1:
        assert sorted(out.lines()) == [f"web-0-{number}" for number in range(4)]
        out.deliver(1, more)
    assert sorted(out.lines()) == sorted(f"web-0-{number}" for number in range(12))
    assert not out.notes


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("at", range(12))
def test_a_disk_that_fails_behind_any_step_of_a_commit_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_killed: bool
) -> None:
    """The commit may be on disk all the same: neither the next attempt nor a start may believe it and leave it out."""
    out = Opened(tmp_path)
    out.deliver(0, [_event(0)])
    report = out.staged([_event(1), _event(2)])
    steps = iter(range(1_000))

    def doubtful(path: Path, data: bytes) -> None:
        real(path, data)
        if next(steps) >= at:
            raise OSError(errno.EIO, "Input/output error")

    real = write_durably
    with monkeypatch.context() as patched:
        for module in (appending, checked):
            patched.setattr(module, "write_durably", doubtful)
        with suppress(OSError):
            out.files.commit(1, [report])
    if is_killed and out.files.seen.batch < 1:
        out.staged([_event(1), _event(2)])
        out.open()
    if out.files.seen.batch < 1:
        out.deliver(1, [_event(1), _event(2)])
    out.deliver(2, [_event(3)])
    out.open()
    assert sorted(out.lines()) == [f"web-0-{number}" for number in range(4)]


def test_a_full_disk_leaves_whole_lines_and_the_next_attempt_writes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Opened(tmp_path)
    out.deliver(0, [_event(0)])
    full = iter((True, False))

    def copy(source: BinaryIO, target: BinaryIO, size_bytes: int) -> None:
        if next(full):
            target.write(source.read(20))
            target.flush()
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target, size_bytes)

    real = appending._copy
    monkeypatch.setattr(appending, "_copy", copy)
    with pytest.raises(OSError, match="No space left"):
        out.deliver(1, [_event(1)])
    assert out.lines() == ["web-0-0"]
    out.deliver(1, [_event(1)])
    assert out.lines() == ["web-0-0", "web-0-1"]


def test_a_file_that_was_replaced_meanwhile_is_left_alone_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Opened(tmp_path)
    out.deliver(0, [_event(0)])
    with monkeypatch.context() as patched:
        _crashing(patched, 3)
        with suppress(CrashError):
            out.deliver(1, [_event(1)])
    path = tmp_path / "out" / "app.jsonl"
    path.rename(tmp_path / "aside")
    path.write_bytes(b'{"event_id": "theirs"}\n')
    out.open()
    assert out.lines() == ["theirs"]
    assert any("was replaced" in note for note in out.notes)


PIPELINE = """\
name: t
sources: {s: {type: stream, stream: web}}
transforms: {parsed: {type: parse, inputs: [s], rules: [{format: text}]}}
sinks:
SINKS
"""


def _problems(tmp_path: Path, sinks: str) -> Iterator[str]:
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(PIPELINE.replace("SINKS", sinks), str(tmp_path / "p.yaml"))
    yield from (f"{problem.line}: {problem.where}: {problem.message}" for problem in caught.value.problems)


def test_what_is_wrong_with_a_file_sink_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    sinks = """\
  a: {type: file, inputs: [parsed], path: "out/{servce}.log"}
  b: {type: file, inputs: [parsed], path: out/b.log, rotate: {keep: 3}}
  c: {type: file, inputs: [parsed], path: ./out/../out/b.log}
  d: {type: file, inputs: [parsed], path: there}
  e: {type: file, inputs: [parsed], path: checkpoints/t/x.log, rotate: {size: 1B}}
  f: {type: file, inputs: [parsed], path: "s3://bucket/x", compression: lz4}
  g: {type: parquet, inputs: [parsed], path: archive}
  h: {type: file, inputs: [parsed], path: archive/x.log}
"""
    found = list(_problems(tmp_path, sinks))
    assert [line for line in found if "sinks.a" in line] == [
        "5: sinks.a.path: unknown part 'servce' (did you mean 'service'?)"
    ]
    assert "6: sinks.b.rotate: needs a size, or every, or both" in found
    assert any(line.startswith("7: sinks.c.path: is the file of the sink 'b' (line 6)") for line in found)
    assert any(line.startswith("8: sinks.d.path:") and "is a directory" in line for line in found)
    assert any(line.startswith("9: sinks.e.rotate.size:") for line in found)
    assert any(line.startswith("10: sinks.f.compression:") for line in found)
    assert any(
        line.startswith("12: sinks.h.path: is inside the directory of the archive of the sink 'g'") for line in found
    )
