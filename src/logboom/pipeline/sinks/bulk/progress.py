"""The durable progress of a delivery: its last batch, and the offsets by which repeats in its edge are recognised.

Knows a file of the delivery's checkpoint. Must not know servers or Spark.
"""

from pathlib import Path

import msgspec

from logboom.pipeline.checkpoint.checked import REPEATS, read_checked, write_checked
from logboom.pipeline.checkpoint.files import make_dir


class DeliveredOrigins(msgspec.Struct, frozen=True):
    """Progress after a batch."""

    batch: int = -1
    high_water: dict[str, int] = {}
    """Highest delivered offset of origin, by `origin_key`."""
    retried: frozenset[str] = frozenset()
    """Dead letters whose events were delivered."""


def read_progress(checkpoint: Path) -> DeliveredOrigins:
    """Progress after the last batch."""
    path = _path(checkpoint)
    return read_checked(path, DeliveredOrigins, REPEATS) if path.exists() else DeliveredOrigins()


def write_progress(checkpoint: Path, progress: DeliveredOrigins) -> None:
    """Write the progress durably."""
    make_dir(checkpoint)
    write_checked(_path(checkpoint), progress)


def _path(checkpoint: Path) -> Path:
    return checkpoint / "delivered.json"
