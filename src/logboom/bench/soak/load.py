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
"""Seconds of load that each partition keeps: short, so that retention runs early; long enough for every live reader."""
BROKER_SETTINGS: Final = {
    "broker.retention_check_interval_s": "2s",
    "broker.checkpoint_interval_s": "20s",
    "broker.groups.initial_rebalance_delay_ms": "0ms",
}


@dataclass(frozen=True)
class SoakLoad:
    """Duration and rates. All restarts fall into the first half: the second is one process, so that a leak shows."""

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
        """Seconds of load; draining and checking are not included."""
        return self.minutes * 60

    @property
    def last_restart_s(self) -> float:
        """No restart after this many seconds."""
        return self.seconds / 2

    @property
    def judged_from_s(self) -> float:
        """Seconds until the last process has filled its caches: the judged part begins here."""
        return self.seconds * 0.55
