"""One followed file: the states of its life, when it is looked at again, and what its next reading waits for.

    FOLLOWED   its path names it; it is read as it grows
    ROTATED    renamed to a path that a glob still finds, or a copy of content that was truncated: what it holds was
               written before the rotation, so the file that took its place waits until this one has been read
    DETACHED   no path of the input names it: it can be read only by the handle that is held
    ENDED      nothing more is read from it; its last line has been handed on

    FOLLOWED -> ROTATED    a glob finds the same inode under another path
    FOLLOWED -> DETACHED   its path names another file or none
    ROTATED  -> FOLLOWED   quiet for `rotate_wait_ms`: its unfinished last line was handed on, growth is new content
    ROTATED  -> DETACHED   the renamed file is missing from its new path as well
    DETACHED -> ROTATED    a glob finds the same inode again
    DETACHED -> ENDED      quiet for `rotate_wait_ms`, or its handle was given back and no path leads to it any more
    any      -> ENDED      truncated in place: its path goes on with a new `WatchedFile` for the new content

A state is about names alone. Whether the end of the file was reached is `is_read_to_end`; whether a turn of reading is
due is `is_queued`. Knows no other file but the one whose content comes before its own.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from logboom.collector.tail import FileTail, Identity


class State(Enum):
    """See the module."""

    FOLLOWED = auto()
    ROTATED = auto()
    DETACHED = auto()
    ENDED = auto()


_TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.FOLLOWED: frozenset({State.ROTATED, State.DETACHED, State.ENDED}),
    State.ROTATED: frozenset({State.FOLLOWED, State.ROTATED, State.DETACHED, State.ENDED}),
    State.DETACHED: frozenset({State.ROTATED, State.DETACHED, State.ENDED}),
    State.ENDED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class WatchRule:
    """When files are looked at, and how many are held open. Durations in ms."""

    start_at_end: bool = False
    discover_ms: int = 2_000
    """How often the globs are expanded."""
    hot_ms: int = 200
    """How often a file is looked at that changed a moment ago."""
    idle_ms: int = 1_000
    """How often any other file is looked at."""
    rotate_wait_ms: int = 5_000
    """How long a rotated file must be quiet before its unfinished last line counts as finished."""
    copy_wait_ms: int = 10_000
    """How long a new file that looks like a copy in the making is left alone (logrotate's `copytruncate`)."""
    max_open_files: int = 512


@dataclass(slots=True, eq=False)
class WatchedFile:
    """A followed file. See the module for its states."""

    tail: FileTail
    identity: Identity
    path: str
    changed_ms: int
    """When it was last seen to have grown, on the collector's monotonic clock."""
    state: State = State.FOLLOWED
    size: int = -1
    mtime_ns: int = -1
    due_ms: int = 0
    """When it is looked at next."""
    is_queued: bool = False
    """Whether it waits for a turn of reading."""
    is_read_to_end: bool = False
    """Whether the end of the file was reached after the last rotation."""
    predecessor: "WatchedFile | None" = None
    """The file whose lines were written under the same path before this one's."""

    def move_to(self, state: State) -> None:
        """Change the state; a transition that the module does not name is a programmer's error."""
        assert state in _TRANSITIONS[self.state], f"{self.path}: {self.state.name} -> {state.name}"
        self.state = state

    @property
    def is_ended(self) -> bool:
        """Whether nothing more is read from it."""
        return self.state is State.ENDED

    @property
    def is_detached(self) -> bool:
        """Whether only the held handle leads to it: giving the handle back may lose what was not read."""
        return self.state is State.DETACHED

    @property
    def ends_when_quiet(self) -> bool:
        """Whether `rotate_wait_ms` without growth finishes its last line: it was rotated away."""
        return self.state in {State.ROTATED, State.DETACHED}

    @property
    def must_wait(self) -> bool:
        """Whether lines of its predecessor come first."""
        before = self.predecessor
        return before is not None and (not before.is_read_to_end or before.tail.holds_something)

    def end(self) -> None:
        """Nothing more is read from it."""
        self.move_to(State.ENDED)
        self.is_read_to_end = True
