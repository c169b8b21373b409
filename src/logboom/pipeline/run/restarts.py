"""Restarts a run after Spark's JVM has ended: the process replaces itself with `exec` and continues with the same
batch.

A batch of large events may need more memory than the JVM has; the next start processes it in smaller pieces
(`batch_memory`). The restart must be complete: threads of the driver may still wait for the old JVM, and PySpark
supports one JVM per process. `exec` ends these threads, keeps the process id for the service manager, and leaves the
same state as a kill, which a checkpoint survives.

State for the next process is in an open file without a name, in memory where the system supports that, because a disk
may be full. An environment variable has the file's number. Knows processes, signals and the batches in progress. Must
not know what a batch does.
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
"""A run gives up after this many JVM ends in a row with the same batch in progress. The fifth start of a batch uses the
smallest possible pieces, and that is tried twice."""
_PAUSE_MAX_S: Final = 30.0
_LONG_S: Final = 600.0
"""If a run has lasted this long, its end is not attributed to a batch that it started with."""
_VARIABLE: Final = "LOGBOOM_PIPELINE_RESTART"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NO_BATCH: Final = "no batch"


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """How often a run was restarted, and why."""

    count: int = 0
    ends: Mapping[str, int] = {}
    """Number of ends in a row, by the batches in progress when the JVM ended."""
    plan: str | None = None
    """The plan of the run, as JSON: the file may be incomplete because of an edit."""
    dropped: tuple[str, ...] = ()
    """Transforms whose state was dropped."""
    replay: str | None = None
    """The name of the replay; None for a run of the pipeline itself."""

    def after(self, under_way: tuple[str, ...], lasted_s: float, plan: str, dropped: tuple[str, ...]) -> "Restarts":
        """With another JVM end, after a run of this duration."""
        before = self.ends if lasted_s < _LONG_S else {}
        ends = {one: before.get(one, 0) + 1 for one in under_way or (_NO_BATCH,)}
        return Restarts(count=self.count + 1, ends=ends, plan=plan, dropped=dropped)

    def of_replay(self, name: str) -> "Restarts":
        """For the replay with this name."""
        return msgspec.structs.replace(self, replay=name)

    @property
    def pause_s(self) -> float:
        """Seconds to wait before the next start."""
        return float(min(2 ** (self._most[1] - 1), _PAUSE_MAX_S))

    @property
    def given_up_for(self) -> str | None:
        """What to do, as the end of a sentence, if another start would not help."""
        what, times = self._most
        if times < ENDS_MAX:
            return None
        if what == _NO_BATCH:
            return f"{times} times in a row before any batch; nothing is lost"
        return (
            f"{times} times in a row with {what} running, at last in the smallest possible pieces; nothing is lost: "
            "the next start continues with the same batch, which may need more memory"
        )

    @property
    def _most(self) -> tuple[str, int]:
        return max(self.ends.items(), key=lambda end: end[1], default=(_NO_BATCH, 0))


def under_way_in(*checkpoints: Path) -> tuple[str, ...]:
    """Names for messages of the batches that were started and not committed."""
    queries = [("the router", checkpoint / "router") for checkpoint in checkpoints]
    for checkpoint in checkpoints:
        found = sorted(checkpoint.glob("deliveries/*/query"))
        queries += [(f"the sink {query.parent.name}", query) for query in found]
    batches = [(unfinished_batch(query), name) for name, query in queries]
    return tuple(f"batch {batch} of {name}" for batch, name in batches if batch is not None)


def restarts_so_far() -> Restarts | None:
    """The state that the previous process has left; None for a first start."""
    number = os.environ.pop(_VARIABLE, None)
    if number is None:
        return None
    with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError), open(int(number), "rb") as file:
        return msgspec.json.decode(file.read(), type=Restarts)
    return Restarts()


def allow_signals() -> None:
    """Signals that arrived during the replacement end the process here, in order: no batch has begun."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Block signals until the end; those that came before have been handled."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_anew(restarts: Restarts) -> NoReturn:
    """Replace the process, with the same arguments. Call this within `held_signals`, which block until
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
