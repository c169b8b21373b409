"""The states of a followed file: every transition that is named is possible, every other is a programmer's error."""

import os
from pathlib import Path

import pytest

from logboom.collector.fingerprint import Fingerprint
from logboom.collector.tail import FileTail, Generation, Identity, ReadRule
from logboom.collector.watch import State, WatchedFile

ALLOWED = {
    (State.FOLLOWED, State.ROTATED),
    (State.FOLLOWED, State.DETACHED),
    (State.FOLLOWED, State.ENDED),
    (State.ROTATED, State.FOLLOWED),
    (State.ROTATED, State.ROTATED),
    (State.ROTATED, State.DETACHED),
    (State.ROTATED, State.ENDED),
    (State.DETACHED, State.ROTATED),
    (State.DETACHED, State.DETACHED),
    (State.DETACHED, State.ENDED),
}


def watch_of(path: Path, state: State) -> WatchedFile:
    path.write_bytes(b"a line\n")
    status = path.stat()
    identity = Identity(status.st_dev, status.st_ino)
    generation = Generation(str(path), identity, Fingerprint())
    rule = ReadRule(max_line_bytes=100, block_bytes=100, join=None)
    tail = FileTail(generation, str(path), rule, os.open(path, os.O_RDONLY), 0)
    tail.release()
    return WatchedFile(tail, identity, str(path), changed_ms=0, state=state)


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_only_named_transitions_are_taken(tmp_path: Path, before: State, after: State) -> None:
    watch = watch_of(tmp_path / "app.log", before)
    if (before, after) in ALLOWED:
        watch.move_to(after)
        assert watch.state is after
    else:
        with pytest.raises(AssertionError, match=f"{before.name} -> {after.name}"):
            watch.move_to(after)
        assert watch.state is before


def test_a_successor_waits_until_its_predecessor_was_read_to_its_end(tmp_path: Path) -> None:
    rotated = watch_of(tmp_path / "app.log.1", State.ROTATED)
    successor = watch_of(tmp_path / "app.log", State.FOLLOWED)
    waited = [successor.must_wait]
    successor.predecessor = rotated
    waited.append(successor.must_wait)
    rotated.is_read_to_end = True
    waited.append(successor.must_wait)
    assert waited == [False, True, False]


def test_a_file_at_its_end_does_not_delay_others(tmp_path: Path) -> None:
    rotated = watch_of(tmp_path / "app.log.1", State.DETACHED)
    successor = watch_of(tmp_path / "app.log", State.FOLLOWED)
    successor.predecessor = rotated
    rotated.end()
    assert rotated.is_ended
    assert not successor.must_wait
