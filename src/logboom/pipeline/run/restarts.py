"""What a run does when Spark's JVM has ended: the process puts itself in its own place and goes on with the same batch.

A batch of large events may be more than the JVM has memory for; the next start takes it in smaller pieces
(`batch_memory`). So a start is what is needed, and a whole one: threads of the driver may still be at work for the JVM
that is gone, and PySpark knows one JVM in a process. `exec` ends these threads, keeps the process's id for whoever
supervises it, and leaves what a kill leaves, which is what a checkpoint is made for.

What the next process has to know is in an open file without a name, in memory where the system has such files: a disk
may be full. The file's number is in a variable. Knows processes, signals and which
batches were under way. Must not know what a batch does.
"""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Final, NoReturn

import msgspec

from logboom.pipeline.checkpoint.spark_log import unfinished_batch

ENDS_MAX: Final = 6
"""Ends of the JVM in a row with the same batch under way, after which a run gives up. The fifth start of a batch takes
it in the smallest pieces there are, and that is tried twice."""
_PAUSE_MAX_S: Final = 30.0
_LONG_S: Final = 600.0
"""A run that lasted so long has not ended for a batch that it began with."""
_VARIABLE: Final = "LOGBOOM_PIPELINE_RESTART"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NO_BATCH: Final = "no batch"


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """How often a run has started anew, and why."""

    count: int = 0
    ends: Mapping[str, int] = {}
    """By what was under way when the JVM ended: how often in a row it was."""
    plan: str | None = None
    """The plan it ran with, as JSON: its file may be in the middle of an edit."""
    dropped: tuple[str, ...] = ()
    """Transforms whose state had been given up."""
    replay: str | None = None
    """The name of the replay that it was; None for a run of the pipeline itself."""

    def after(self, under_way: tuple[str, ...], lasted_s: float, plan: str, dropped: tuple[str, ...]) -> "Restarts":
        """With one end more, of a JVM under a run that lasted so long."""
        before = self.ends if lasted_s < _LONG_S else {}
        ends = {one: before.get(one, 0) + 1 for one in under_way or (_NO_BATCH,)}
        return Restarts(count=self.count + 1, ends=ends, plan=plan, dropped=dropped)

    def of_replay(self, name: str) -> "Restarts":
        """For the replay of this name."""
        return msgspec.structs.replace(self, replay=name)

    @property
    def pause_s(self) -> float:
        """How long to wait for the next start."""
        return float(min(2 ** (self._most[1] - 1), _PAUSE_MAX_S))

    @property
    def given_up_for(self) -> str | None:
        """What to do, as the end of a sentence, where another start would not help."""
        what, times = self._most
        if times < ENDS_MAX:
            return None
        if what == _NO_BATCH:
            return f"{times} times in a row before any batch; nothing is lost"
        return (
            f"{times} times in a row with {what} running, at last in the smallest possible pieces; nothing is lost: "
            "the next start continues with the same batch, and may need more memory for it"
        )

    @property
    def _most(self) -> tuple[str, int]:
        return max(self.ends.items(), key=lambda end: end[1], default=(_NO_BATCH, 0))


def under_way_in(*checkpoints: Path) -> tuple[str, ...]:
    """The batches that were begun and not committed, as a person calls them."""
    queries = [("the router", checkpoint / "router") for checkpoint in checkpoints]
    for checkpoint in checkpoints:
        found = sorted(checkpoint.glob("deliveries/*/query"))
        queries += [(f"the sink {query.parent.name}", query) for query in found]
    batches = [(unfinished_batch(query), name) for name, query in queries]
    return tuple(f"batch {batch} of {name}" for batch, name in batches if batch is not None)


def restarts_so_far() -> Restarts | None:
    """What the process that was here before has left; None for a first start."""
    number = os.environ.pop(_VARIABLE, None)
    if number is None:
        return None
    with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError), open(int(number), "rb") as file:
        return msgspec.json.decode(file.read(), type=Restarts)
    return Restarts()


def allow_signals() -> None:
    """Signals that came while the process was put in its own place end it here, in order: no batch has begun."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Signals wait until the end; those that came before have been handled."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_anew(restarts: Restarts) -> NoReturn:
    """Puts the process in its own place, as it was called. To be called with `held_signals`, which wait for
    `allow_signals`."""
    left = _unnamed_file()
    left.write(msgspec.json.encode(restarts))
    left.seek(0)
    os.set_inheritable(left.fileno(), True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[_VARIABLE] = str(left.fileno())
    os.execv(sys.executable, (sys.executable, *sys.orig_argv[1:]))  # noqa: S606 - a shell would be another process


def _unnamed_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("logboom-restart"), "w+b")
    return tempfile.TemporaryFile()
