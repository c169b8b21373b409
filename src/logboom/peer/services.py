"""What the connections of one server share."""

from collections import Counter
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from logboom.base.ports import Ids
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.broker.runtime import Runtime
from logboom.peer.frames import SCRATCH_BYTES
from logboom.peer.handlers import Handlers
from logboom.peer.handshake import NO_PROCESSES, Introduction, Processes
from logboom.peer.key import ClusterKeys
from logboom.peer.metrics import PeerMetrics


@dataclass(slots=True)
class PeerServices:
    """See the module. On one loop."""

    keys: ClusterKeys = field(repr=False)
    ids: Ids
    log: RateLimitedLog
    limit_hits: Counter[str]
    seal_records: bool = False
    """Whether the seals of long answers with records cover the records too."""
    metrics: PeerMetrics = field(default_factory=PeerMetrics)
    handlers: Handlers = field(default_factory=Handlers)
    scratch: memoryview = field(default_factory=lambda: memoryview(bytearray(SCRATCH_BYTES)), repr=False)
    """Where connections read into between long bodies."""
    own: Introduction | None = None
    """What this broker says of itself; None before it knows who it is."""
    processes: Processes = NO_PROCESSES
    """What it knows of processes."""

    def nonce(self) -> bytes:
        """32 bytes that were never used before and cannot be guessed."""
        return self.ids.uuid().bytes + self.ids.uuid().bytes


def make_services(
    keys: ClusterKeys, runtime: Runtime, log: FilteringBoundLogger, *, seal_records: bool
) -> PeerServices:
    """The services of one server."""
    hits: Counter[str] = Counter()
    return PeerServices(keys, runtime.ids, RateLimitedLog(log, runtime.clock, hits), hits, seal_records)
