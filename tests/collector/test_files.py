"""Files through rotations and restarts: every written line comes out, in order, at least once."""

import os
import random
import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from logboom.collector.discover import Discovery
from logboom.collector.files import FileInput
from logboom.collector.fingerprint import Fingerprint
from logboom.collector.tail import FileBatch, Generation, ReadRule
from logboom.collector.watch import WatchRule

LOG: Any = structlog.wrap_logger(None, processors=[], wrapper_class=structlog.make_filtering_bound_logger(50))
RULE = WatchRule(discover_ms=1, hot_ms=0, idle_ms=0, rotate_wait_ms=50, copy_wait_ms=100, max_open_files=4)


class Rig:
    """A directory of log files, a collector's file input over it, a sink that acknowledges when told."""

    def __init__(
        self, directory: Path, pattern: str = "app.log", *, block_bytes: int = 64, rule: WatchRule = RULE
    ) -> None:
        self.directory = directory
        self.pattern = pattern
        self.read_rule = ReadRule(max_line_bytes=1 << 16, block_bytes=block_bytes, join=None)
        self.rule = rule
        self.now_ms = 0
        self.written: list[bytes] = []
        self.sunk: list[tuple[str, bytes]] = []
        self.positions: list[int] = []
        self.unacked: deque[FileBatch] = deque()
        self.saved: list[Generation] | None = None
        self.saved_ns = 0
        self.mtime_ns = 1_000_000_000
        self.identities: dict[tuple[str, int], bytes] = {}
        self.start()

    def start(self) -> None:
        discovery = Discovery(
            [str(self.directory / self.pattern)], [], own=frozenset(), own_dir=str(self.directory / "state")
        )
        saved = None if self.saved is None else [replace(generation) for generation in self.saved]
        self.input = FileInput(discovery, self.read_rule, self.rule, saved, self.saved_ns, LOG)

    def path(self, name: str = "app.log") -> Path:
        return self.directory / name

    def touched(self, path: Path) -> None:
        """A clock of our own for mtime, since the file system's ticks are longer than our steps."""
        self.mtime_ns += 10_000_000
        os.utime(path, ns=(self.mtime_ns, self.mtime_ns))

    def append(self, content: bytes, name: str = "app.log") -> None:
        with open(self.path(name), "ab") as file:
            file.write(content)
        self.touched(self.path(name))

    def poll(self, ms: int = 1) -> None:
        self.now_ms += ms
        self.input.poll(self.now_ms)

    def take(self, batches: int = 1_000_000) -> int:
        taken = 0
        while taken < batches and (batch := self.input.next_batch(self.now_ms)) is not None:
            if not batch.generation.is_durable:
                self.checkpoint()
            self.sunk += [(batch.generation.path, value) for value in batch.lines.values]
            for start, value in zip(batch.lines.starts, batch.lines.values, strict=True):
                assert self.identities.setdefault((batch.generation.id, start), value) == value
            self.positions += batch.lines.starts
            self.unacked.append(batch)
            taken += 1
        return taken

    def ack(self, batches: int = 1_000_000) -> None:
        while self.unacked and batches:
            self.input.acked(self.unacked.popleft())
            batches -= 1

    def checkpoint(self) -> None:
        """As the agent does it: before the first line of a content is sent, and from time to time."""
        generations = self.input.generations()
        for generation in generations:
            generation.note_checkpoint()
        self.saved = [replace(generation, closed=False, outstanding=0) for generation in generations]
        self.mtime_ns += 10_000_000
        self.saved_ns = self.mtime_ns

    def crash(self) -> None:
        """What a checkpoint holds is all that stays."""
        self.input.close()
        self.unacked.clear()

    def settle(self) -> None:
        """Until nothing changes for as long as every waiting time together."""
        for _ in range(30):
            self.poll(RULE.rotate_wait_ms // 2)
            self.take()
            self.ack()

    @property
    def values(self) -> list[bytes]:
        return [value for _, value in self.sunk]

    @property
    def first_seen(self) -> list[bytes]:
        return list(dict.fromkeys(self.values))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_lines_come_out_once_with_their_positions(rig: Rig) -> None:
    rig.append(b"one\ntwo\n\nfour")
    rig.settle()
    assert rig.values == [b"one", b"two", b""]
    rig.append(b" and a half\r\n\xff\x00\n")
    rig.settle()
    assert rig.values == [b"one", b"two", b"", b"four and a half", b"\xff\x00"]
    assert rig.positions == [0, 4, 8, 9, 26]


def test_a_line_that_grows_slowly_is_not_split(rig: Rig) -> None:
    for letter in b"slowly":
        rig.append(bytes([letter]))
        rig.settle()
    assert rig.values == []
    rig.append(b"\n")
    rig.settle()
    assert rig.values == [b"slowly"]


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
def test_rotation_by_rename(tmp_path: Path, pattern: str) -> None:
    rig = Rig(tmp_path, pattern)
    rig.append(b"a\nb\n")
    rig.poll()
    rig.take(1)
    rig.append(b"late")
    rig.path().rename(rig.path("app.log.1"))
    rig.append(b"c\n")
    rig.settle()
    assert rig.values == [b"a", b"b", b"late", b"c"]
    assert {path for path, _ in rig.sunk} == {str(rig.path())}
    rig.append(b"r\n", "app.log.1") if pattern == "app.log*" else None
    rig.settle()
    assert rig.values[4:] == ([b"r"] if pattern == "app.log*" else [])


def test_the_writer_may_go_on_in_the_renamed_file_for_a_while(rig: Rig) -> None:
    rig.append(b"a\n")
    rig.poll()
    rig.take()
    rig.path().rename(rig.path("app.log.1"))
    rig.poll()
    rig.take()
    rig.append(b"b\n", "app.log.1")
    rig.poll(RULE.rotate_wait_ms - 10)
    rig.append(b"c", "app.log.1")
    rig.settle()
    assert rig.values == [b"a", b"b", b"c"]
    assert rig.input.files_watched == 0
    assert rig.input.generations() == []


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
@pytest.mark.parametrize("unread", [b"", b"unread\n", b"x" * 200 + b"\n"])
@pytest.mark.parametrize("renewed", [b"", b"n\n", b"n" * 500 + b"\n"])
def test_rotation_by_copytruncate(tmp_path: Path, pattern: str, unread: bytes, renewed: bytes) -> None:
    rig = Rig(tmp_path, pattern)
    rig.append(b"a\nb\npart")
    rig.poll()
    rig.take()
    rig.append(b"ial\n" + unread)
    shutil.copy(rig.path(), rig.path("app.log.1"))
    rig.poll()
    os.truncate(rig.path(), 0)
    rig.append(renewed)
    rig.settle()
    expected = b"a\nb\npartial\n" + unread + renewed
    assert rig.values == expected.split(b"\n")[:-1]


def test_a_copy_that_is_followed_by_no_truncation_is_a_file_of_its_own(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "app.log*")
    rig.append(b"a\nb\n")
    rig.settle()
    shutil.copy(rig.path(), rig.path("app.log.bak"))
    rig.settle()
    assert rig.sunk[2:] == [(str(rig.path("app.log.bak")), b"a"), (str(rig.path("app.log.bak")), b"b")]


def test_truncation_is_seen_although_the_file_has_grown_past_the_old_position(rig: Rig) -> None:
    rig.append(b"old\n")
    rig.settle()
    os.truncate(rig.path(), 0)
    rig.append(b"new one, much longer than before\n")
    rig.settle()
    assert rig.values == [b"old", b"new one, much longer than before"]
    assert rig.input.counters.truncations == 1


def test_a_deleted_file_is_read_to_its_end(rig: Rig) -> None:
    rig.append(b"a\n")
    with open(rig.path(), "ab") as writer:
        rig.poll()
        rig.path().unlink()
        rig.poll()
        writer.write(b"b\nc")
        writer.flush()
        rig.settle()
    assert rig.values == [b"a", b"b", b"c"]
    assert rig.input.handles_open == 0
    assert rig.input.generations() == []


def test_an_inode_used_again_is_another_file(rig: Rig) -> None:
    rig.append(b"first\n")
    rig.settle()
    rig.checkpoint()
    rig.crash()
    rig.path().write_bytes(b"other content\n")
    assert rig.saved is not None
    rig.start()
    rig.settle()
    assert rig.values == [b"first", b"other content"]


def test_a_directory_that_is_not_there_yet_keeps_its_positions(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mount/*.log")
    rig.path("mount").mkdir()
    rig.append(b"a\n", "mount/x.log")
    rig.settle()
    rig.checkpoint()
    rig.crash()
    rig.path("mount").rename(rig.path("elsewhere"))
    rig.start()
    rig.settle()
    rig.path("elsewhere").rename(rig.path("mount"))
    rig.append(b"b\n", "mount/x.log")
    rig.settle()
    assert rig.values == [b"a", b"b"]


def test_compressed_and_excluded_files_are_skipped(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "*")
    discovery = Discovery([str(tmp_path / "*")], ["*.tmp", "debug*"], own=frozenset(), own_dir=str(tmp_path / "state"))
    rig.input = FileInput(discovery, rig.read_rule, RULE, None, 0, LOG)
    for name in ("app.log", "app.log.1.gz", "x.tmp", "debug.log", "a.zst"):
        rig.append(name.encode() + b"\n", name)
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    rig.settle()
    assert rig.values == [b"app.log"]


def test_starting_at_the_end_holds_for_what_was_there_at_the_first_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "*.log", rule=replace(RULE, start_at_end=True))
    rig.append(b"old\nunfin")
    rig.input.close()
    rig.start()
    rig.settle()
    rig.append(b"ished\n")
    rig.append(b"all of it\n", "new.log")
    rig.settle()
    assert rig.values == [b"unfinished", b"all of it"]
    rig.checkpoint()
    rig.crash()
    rig.append(b"while away\n", "newer.log")
    rig.start()
    rig.settle()
    assert rig.values[2:] == [b"while away"]


def test_many_files_share_few_handles_and_all_get_their_turn(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "*.log", block_bytes=16)
    for number in range(20):
        rig.append(b"%d line\n" % number * 10, f"f{number}.log")
    rig.poll()
    rig.take(20)
    assert len({path for path, _ in rig.sunk}) == 20
    assert rig.input.handles_open <= RULE.max_open_files
    rig.settle()
    assert len(rig.sunk) == 200
    rig.path("f3.log").rename(rig.path("moved"))
    rig.append(b"new\n", "f3.log")
    rig.settle()
    assert len(rig.sunk) == 201


def test_a_link_to_a_file_does_not_read_it_twice(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "*.log")
    rig.append(b"a\n")
    os.symlink(rig.path(), rig.path("current.log"))
    rig.settle()
    rig.append(b"b\n")
    rig.settle()
    assert rig.values == [b"a", b"b"]


def test_a_file_that_may_not_be_read_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open, refused = os.open, [True]

    def refusing(path: Any, *args: Any, **kwargs: Any) -> int:
        if refused[0] and str(path).endswith("app.log"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, *args, **kwargs)

    rig.append(b"a\n")
    monkeypatch.setattr(os, "open", refusing)
    rig.settle()
    assert rig.values == []
    assert rig.input.counters.errors > 0
    refused[0] = False
    rig.settle()
    assert rig.values == [b"a"]


def test_a_fingerprint_of_a_short_file_grows_with_it(rig: Rig) -> None:
    rig.append(b"a\n")
    rig.settle()
    [generation] = rig.input.generations()
    assert generation.acked.head_bytes == 2
    rig.append(b"b" * 2000 + b"\n")
    rig.settle()
    assert generation.acked.head_bytes == 1024
    assert generation.acked.position == 2003


@pytest.mark.parametrize(
    ("name", "is_rotation"),
    [
        ("app.log.1", True),
        ("app.log-20261120", True),
        ("app.log.2026-11-20T10", True),
        ("app-20261120.log", True),
        ("app.1.log", True),
        ("app.log", False),
        ("app.log.gz", False),
        ("app.log.1.gz", False),
        ("app-errors.log", False),
        ("app.log.audit", False),
        ("app2.log", False),
    ],
)
def test_a_copy_that_was_never_seen_is_known_by_its_name_and_time(tmp_path: Path, name: str, is_rotation: bool) -> None:
    rig = Rig(tmp_path)
    rig.append(b"")
    rig.append(b"older\n", "app.log.9")
    rig.settle()
    rig.checkpoint()
    rig.crash()
    rig.append(b"before\n", name)
    rig.append(b"after\n")
    rig.start()
    rig.settle()
    before = [b"before"] if is_rotation or name == "app.log" else []
    assert rig.values == [*before, b"after"]
    assert {path for path, _ in rig.sunk} == {str(rig.path())}


@pytest.mark.parametrize(("name", "is_rotation"), [("app.log.1", True), ("app-1.log", False)])
def test_a_file_that_the_globs_find_is_a_copy_of_another_one_only_if_it_has_its_name(
    tmp_path: Path, name: str, is_rotation: bool
) -> None:
    rig = Rig(tmp_path, "app*")
    rig.append(b"")
    rig.settle()
    rig.checkpoint()
    rig.crash()
    rig.append(b"before\n", name)
    rig.append(b"after\n")
    rig.start()
    rig.settle()
    paths = {value: path for path, value in rig.sunk}
    own = str(rig.path("app.log" if is_rotation else name))
    assert paths == {b"before": own, b"after": str(rig.path())}


def test_what_a_fingerprint_says() -> None:
    content = random.Random(1).randbytes(5000)

    def reader(data: bytes) -> Any:
        return lambda position, length: data[position : position + length]

    mark = Fingerprint.taken(3000, reader(content))
    assert mark.matches(reader(content))
    assert mark.matches(reader(content[:3000] + b"other"))
    for changed in (content[:2999], content[:2900] + b"x" + content[2901:], b"x" + content[1:], b""):
        assert not mark.matches(reader(changed))
    assert Fingerprint().says_nothing


ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 8)),
    st.tuples(st.just("partial"), st.integers(1, 6)),
    st.tuples(st.just("poll"), st.sampled_from([1, 1, 1, 60])),
    st.tuples(st.just("take"), st.integers(1, 4)),
    st.tuples(st.just("ack"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["rename", "copytruncate", "drain_and_truncate", "settle", "checkpoint"]), st.just(0)),
    st.tuples(st.sampled_from(["crash", "rename_while_away", "copytruncate_while_away"]), st.integers(0, 4)),
)


class Writer:
    """Writes numbered lines and rotates as programs do, so that every line must come out."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.lines: list[bytes] = []
        self.pending = b""
        self.rotations = 0
        self.random = random.Random(7)

    def line(self) -> bytes:
        line = b"%d:" % len(self.lines) + b"x" * self.random.choice([0, 3, 40, 200])
        self.lines.append(line)
        return line

    def append(self, count: int) -> None:
        content, self.pending = self.pending, b""
        self.rig.append(content + b"".join(self.line() + b"\n" for _ in range(count)))

    def partial(self, length: int) -> None:
        if not self.pending:
            self.pending = self.line() + b"\n"
        part, self.pending = self.pending[:length], self.pending[length:]
        self.rig.append(part)

    def rename(self, _: int) -> None:
        if self.is_whole():
            self.seen()
            self.move_aside()

    def move_aside(self) -> None:
        for number in range(self.rotations, 0, -1):
            self.rig.path(f"app.log.{number}").rename(self.rig.path(f"app.log.{number + 1}"))
        self.rotations += 1
        self.rig.path().rename(self.rig.path("app.log.1"))

    def copytruncate(self, _: int) -> None:
        if self.is_whole():
            self.seen()
            self.copy_and_truncate()

    def copy_and_truncate(self) -> None:
        self.rotations += 1
        for number in range(self.rotations - 1, 0, -1):
            self.rig.path(f"app.log.{number}").rename(self.rig.path(f"app.log.{number + 1}"))
        shutil.copyfile(self.rig.path(), self.rig.path("app.log.1"))
        self.rig.touched(self.rig.path("app.log.1"))
        os.truncate(self.rig.path(), 0)
        self.rig.touched(self.rig.path())

    def drain_and_truncate(self, _: int) -> None:
        if not self.is_whole():
            return
        self.rig.settle()
        os.truncate(self.rig.path(), 0)
        self.rig.touched(self.rig.path())

    def checkpoint(self, _: int) -> None:
        self.rig.checkpoint()

    def crash(self, _: int) -> None:
        self.rig.crash()
        self.rig.start()

    def rename_while_away(self, lines: int) -> None:
        self.rotate_while_away(lines, self.move_aside)

    def copytruncate_while_away(self, lines: int) -> None:
        self.rotate_while_away(lines, self.copy_and_truncate)

    def rotate_while_away(self, lines: int, rotate: Callable[[], None]) -> None:
        """Of the lines of before, which the checkpoint does not know, an even number is not read by the collector."""
        if self.is_whole():
            self.seen()
            self.append(lines)
            if lines % 2:
                self.rig.poll()
                self.rig.take(lines)
            self.rig.crash()
            rotate()
            self.append(lines)
            self.rig.start()

    def is_whole(self) -> bool:
        """Whether there is a file and its last line is finished."""
        return self.rig.path().exists() and not self.pending

    def seen(self) -> None:
        """No collector can follow a file that it never saw, and none that was rotated twice since its checkpoint."""
        self.rig.poll()
        self.rig.checkpoint()

    def do(self, action: str, argument: int) -> None:
        if action in ("poll", "take", "ack"):
            getattr(self.rig, action)(argument)
        elif action == "settle":
            self.rig.settle()
        else:
            getattr(self, action)(argument)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTIONS, max_size=40), st.sampled_from(["app.log", "app.log*"]), st.sampled_from([16, 64, 4096]))
@example([("append", 0), ("copytruncate_while_away", 1)], "app.log", 16)
@example([("append", 0), ("copytruncate_while_away", 2)], "app.log", 16)
def test_any_life_of_a_log_gives_every_line_in_order(actions: list[tuple[str, int]], pattern: str, block: int) -> None:
    with TemporaryDirectory() as directory:
        rig = Rig(Path(directory), pattern, block_bytes=block)
        writer = Writer(rig)
        for action, argument in actions:
            writer.do(action, argument)
        writer.append(1)
        rig.settle()
        assert rig.first_seen == writer.lines
        rig.checkpoint()
        rig.crash()
