"""The brokers whose cleaners are measured, and what their logs say of a compaction.

Both write a line for each one: from which sizes, to which offset, in how many seconds.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from logboom.bench.servers import KafkaServer, LogboomServer, Server, UnavailableError
from logboom.bench.wire import BenchError

_WITHIN_S: Final = 600.0
_LOOK_S: Final = 0.02
_BACKOFF_MS: Final = 50
_KAFKA_TELLS: Final = "org.apache.kafka.storage.internals.log.LogCleaner$CleanerThread"
_KAFKA_LINE: Final = re.compile(
    r"cleaned log (?P<log>\S+) \(dirty section = \[\d+, (?P<upto>\d+)\]\)\s+"
    r"(?P<total>[\d.,]+) MB of log processed in (?P<seconds>[\d.,]+) seconds.*?"
    r"Start size: (?P<before>[\d.,]+) MB.*?End size: (?P<after>[\d.,]+) MB",
    re.DOTALL,
)
_MIB: Final = 1024 * 1024
_REMOVED_LATER: Final = ".deleted"
"""What Kafka renames its files to, `file.delete.delay.ms` before it removes them."""
_REMOVED_OPEN: Final = " (deleted)"
"""How Linux shows a file that has no name any more: Logboom gives its room back a piece at a time."""


@dataclass(frozen=True)
class Told:
    """One compaction, as the broker's log tells of it."""

    upto: int
    """The offset below which the log is compacted now."""
    seconds: float
    bytes_before: int
    """Of all that was read over: the compacted part, and what was new."""
    bytes_after: int


def told_by_logboom(text: str, log: str) -> list[Told]:
    """Of the broker's own log lines, those of this partition."""
    found = []
    for line in text.splitlines():
        if '"log compacted"' in line and f'"{log}"' in line:
            one = json.loads(line)
            sizes = one["size_bytes_before"], one["size_bytes_after"]
            found.append(Told(one["clean_up_to"], one["seconds"], *sizes))
    return found


def told_by_kafka(text: str, log: str) -> list[Told]:
    """The same of Kafka's, whose sizes are in units of 2**20 bytes."""
    return [
        Told(
            int(one["upto"]),
            _number(one["seconds"]),
            int(_number(one["before"]) * _MIB),
            int(_number(one["after"]) * _MIB),
        )
        for one in _KAFKA_LINE.finditer(text)
        if one["log"] == log
    ]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


class Cleaner:
    """A running broker, and what it says of its compactions."""

    def __init__(self, server: Server, told_by: Callable[[str, str], list[Told]], *, has_process: bool = False) -> None:
        self.server = server
        self.has_process = has_process
        """Whether a compaction is a process that the broker starts."""
        self._told_by = told_by

    def told(self, stream: str) -> list[Told]:
        """All compactions of the stream's only partition."""
        return self._told_by(self.server.log_path.read_text(errors="replace"), f"{stream}-0")

    def end_of_complete(self, stream: str) -> int:
        """The first offset of the segment that is written to, which no compaction touches; from the files' names."""
        # os.walk leaves out what goes meanwhile: Kafka deletes the files of earlier streams a minute late
        found = (names for log, _, names in os.walk(self.server.data) if Path(log).name == f"{stream}-0")
        return max(int(Path(name).stem) for names in found for name in names if name.endswith(".log"))

    def wait(self, stream: str, upto: int) -> list[Told]:
        """Wait until the stream is compacted up to an offset; what was told of it all. BenchError after ten minutes."""
        deadline = time.monotonic() + _WITHIN_S
        while True:
            told = self.told(stream)
            if not upto or any(one.upto >= upto for one in told):
                return told  # where no segment is complete yet, none will be told of
            if time.monotonic() > deadline:
                raise BenchError(f"{self.server.name} did not compact {stream} within {_WITHIN_S:.0f} s")
            time.sleep(_LOOK_S)

    def wait_for_room(self) -> None:
        """Wait until no file that was removed takes room any more; BenchError after ten minutes."""
        deadline = time.monotonic() + _WITHIN_S
        while self._has_removed_files():
            if time.monotonic() > deadline:
                raise BenchError(f"{self.server.name} kept files that it had removed for {_WITHIN_S:.0f} s")
            time.sleep(_LOOK_S)

    def _has_removed_files(self) -> bool:
        if any(name.endswith(_REMOVED_LATER) for _, _, names in os.walk(self.server.data) for name in names):
            return True
        for pid in self.server.pids:
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):  # closed meanwhile
                    target = str(descriptor.readlink())
                    if target.startswith(str(self.server.data)) and target.endswith(_REMOVED_OPEN):
                        return True
        return False


@contextmanager
def servers_of(
    names: Sequence[str], directory: Path, note: Callable[[str], None]
) -> Iterator[tuple[dict[str, Cleaner], dict[str, str]]]:
    """The brokers, each up and paused, and why one is left out. They are removed at the end.

    BenchError where none is left.
    """
    cleaners: dict[str, Cleaner] = {}
    left_out: dict[str, str] = {}
    with ExitStack() as cleanup:
        for name in names:
            cleaner = _cleaner(name, directory / name)
            cleanup.callback(cleaner.server.remove)
            note(f"starting {name} ...")
            try:
                cleaner.server.prepare()
                cleaner.server.start()
            except UnavailableError as error:
                left_out[name] = str(error)
                note(f"{name} is left out: {error}")
            else:
                cleaner.server.pause()
                cleaners[name] = cleaner
        if not cleaners:
            raise BenchError(f"no broker could be started: {left_out}")
        yield cleaners, left_out


def _cleaner(name: str, directory: Path) -> Cleaner:
    if name == "logboom":
        server = LogboomServer(directory, {"broker.cleaner.backoff_ms": f"{_BACKOFF_MS}ms"})
        return Cleaner(server, told_by_logboom, has_process=True)
    properties = {"log.cleaner.backoff.ms": str(_BACKOFF_MS)}
    return Cleaner(KafkaServer(directory, properties, tells=(_KAFKA_TELLS,)), told_by_kafka)
