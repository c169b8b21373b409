"""What a soak sends, and how long it keeps at it."""

import random
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Flow:
    """One idempotent producer and its stream."""

    stream: str
    record_bytes: int
    rate_per_s: float
    partitions: int
    codec: str

    def value(self, number: int) -> bytes:
        """The value of record `number` of a partition: its number, then bytes that depend on it."""
        at = number * 31 % 1_021
        return number.to_bytes(8, "big") + _FILLING[at : at + self.record_bytes - 8]

    def config(self, rate: float) -> dict[str, str]:
        """Configuration of the stream under a factor on the rate."""
        kept = max(1 << 20, int(self.record_bytes * self.rate_per_s * rate * KEPT_S / self.partitions))
        return {"retention.bytes": str(kept), "segment.bytes": str(kept // 8)}


_FILLING: Final = random.Random(7).randbytes(202_000)  # noqa: S311 - not to be compressed, not a secret

FLOWS: Final = (
    Flow("soak-tiny", 64, 600, 4, "lz4"),
    Flow("soak-lines", 400, 400, 3, "zstd"),
    Flow("soak-plain", 1_000, 200, 1, "none"),
    Flow("soak-pages", 10_000, 30, 2, "gzip"),
    Flow("soak-blobs", 200_000, 3, 1, "snappy"),
)

KEPT_S: Final = 120
"""What each partition keeps: so many seconds of its load. Retention is at work soon, and overtakes no live reader."""
BROKER_SETTINGS: Final = {
    "broker.retention_check_interval_s": "2s",
    "broker.checkpoint_interval_s": "20s",
    "broker.groups.initial_rebalance_delay_ms": "0ms",
}


@dataclass(frozen=True)
class SoakLoad:
    """How long and how hard. Restarts fall into the first half: the second is one life, so that a leak would show."""

    minutes: float = 60.0
    rate: float = 1.0
    """Factor on the rate of every flow."""
    restart_every_s: float = 120.0
    member_life_s: tuple[float, float] = (5.0, 40.0)
    group_members: int = 3
    churn_pause_s: float = 3.0
    seed: int = 1

    @property
    def seconds(self) -> float:
        """Length of the load; draining and checking come after."""
        return self.minutes * 60

    @property
    def last_restart_s(self) -> float:
        """No life of the broker ends after this."""
        return self.seconds / 2

    @property
    def judged_from_s(self) -> float:
        """When the last life has filled its caches and the time that is judged begins."""
        return self.seconds * 0.55
