"""Lines on their way: what is sent, in which order, and what has come back. It knows no Kafka client."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from logboom.collector.batch import Lines

HOST_HEADER = "host.name"
INPUT_HEADER = "log.input"
PATH_HEADER = "log.file.path"
ID_HEADER = "log.file.id"
POSITION_HEADER = "log.file.position"
TIME_HEADER = "log.observed_time_ms"
UNFINISHED_HEADER = "log.unfinished"

RecordHeaders = list[tuple[str, bytes]]


class DeliveryError(Protocol):
    """Why a record was not taken, as the client library says it."""

    def code(self) -> int: ...
    def str(self) -> str: ...


class OrderedSource:
    """Lines that keep their order: those of one path, or of one buffer. One key, so one partition."""

    __slots__ = (
        "__weakref__",
        "_headers",
        "input",
        "key",
        "outstanding",
        "partition",
        "partitions",
        "path",
        "stream",
        "window",
    )

    def __init__(self, stream: str, host: str, input_name: str, path: str) -> None:
        self.stream = stream
        self.input = input_name
        self.path = path
        path_bytes = path.encode("utf-8", "surrogateescape")
        self.key = host.encode() + b":" + path_bytes
        self._headers: RecordHeaders = [
            (HOST_HEADER, host.encode()),
            (INPUT_HEADER, input_name.encode()),
            (PATH_HEADER, path_bytes),
        ]
        self.outstanding: deque[PendingSend] = deque()
        self.partition = self.partitions = 0
        """Where the key goes, of this many; 0 of 0 until a client has found out."""
        self.window: int | None = None
        """Records to send at a time while a refused one is searched for."""

    def headers(self, time_ms: int, content_id: str = "") -> RecordHeaders:
        """Those that all records of one content, read at one time, share."""
        content = [(ID_HEADER, content_id.encode())] if content_id else []
        return [*self._headers, *content, (TIME_HEADER, b"%d" % time_ms)]


@dataclass(slots=True, eq=False)
class PendingSend:
    """Lines of one source that are sent and acknowledged together.

    `acked` counts records from the first on. After an error nothing more is counted, so `acked` is where sending has to
    begin again. `stopped_by` is why the client took no more than `sent` of them.
    """

    source: OrderedSource
    lines: Lines
    time_ms: int
    size_bytes: int
    done: Callable[[], None]
    settled: deque["PendingSend"] = field(repr=False)
    content_id: str = ""
    """Of the content that the lines' positions count in."""
    acked: int = 0
    pending: int = 0
    sent: int = 0
    error: DeliveryError | None = None
    stopped_by: DeliveryError | None = None

    def report(self, error: DeliveryError | None, _message: object) -> None:
        """Called once for every record that was handed to a client which answers for each."""
        self.report_many(error, 1)

    def report_many(self, error: DeliveryError | None, count: int) -> None:
        """The next `count` records that were handed to a client went through, or failed together."""
        self.pending -= count
        if error is None:
            if self.error is None:
                self.acked += count
        elif self.error is None:
            self.error = error
        if not self.pending:
            self.settled.append(self)

    @property
    def count(self) -> int:
        """Records in it."""
        return len(self.lines.values)

    @property
    def complete(self) -> bool:
        """Whether all of it was acknowledged or given up."""
        return not self.pending and self.acked >= len(self.lines.values)
