"""What attempts at a batch have done that is not whole yet, noted so that the next start sends the rest alone.

One file of a delivery's checkpoint, `partial.json`, written where an attempt fails behind part of its batch, and
removed with the batch. It holds for the records that it was written for: of these streams, as they were made, and for
a sink that sends to the same place. Without it, or where it is damaged, nothing is known and the batch is sent whole.

Knows a file of the delivery's checkpoint and the plan's node of a sink. Must not know servers or Spark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import DamagedError, read_checked, write_checked
from logboom.pipeline.checkpoint.files import make_dir
from logboom.pipeline.plan.nodes import Sink
from logboom.pipeline.sinks.repeats.ranges import Done

_NOT_THE_PLACE: Final = ("line", "in_file", "inputs", "on_failure", "attempts", "sending")
"""Keys of a sink's node that say when and how often it sends, and not what or where."""


class PartialBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is done of a batch."""

    batch: int
    target: str
    """`target_digest` of the sink that it was sent by."""
    streams: dict[str, str]
    """Id by name of the streams whose offsets `done` has."""
    done: Done


class PartialBatches:
    """The file of one delivery."""

    def __init__(self, checkpoint: Path, sink: Sink, streams: Mapping[str, str], notify: Callable[[str], None]) -> None:
        """`streams`: the id of each stream that the sink reads, by name. `notify` is told of a file that is damaged."""
        self.path = checkpoint / "partial.json"
        self._sink, self._streams, self._notify = sink, dict(streams), notify
        self._is_there = self.path.exists()
        self._noted = Done()

    def done(self, batch: int) -> Done:
        """What attempts before this start have done of a batch that begins now."""
        self._noted = Done()
        if not self._is_there:
            return self._noted
        found = self._read(batch)
        if found is None or found.batch != batch or found.target != target_digest(self._sink):
            self.remove()
            return self._noted
        # Offsets of a stream that was deleted and made again are other records.
        known = {name for name, stream_id in found.streams.items() if self._streams.get(name) == stream_id}
        ranges = found.done.ranges.items()
        self._noted = Done({place: some for place, some in ranges if place.rpartition("/")[0] in known})
        return self._noted

    def note(self, batch: int, done: Done) -> bool:
        """Durably: so much is done. False if that is nothing more than was noted before."""
        if done == self._noted:
            return False
        make_dir(self.path.parent)
        write_checked(
            self.path,
            PartialBatch(batch=batch, target=target_digest(self._sink), streams=self._streams, done=done),
        )
        self._is_there, self._noted = True, done
        return True

    def remove(self) -> None:
        """The batch is over. What stays behind where the disk fails is of a batch that never comes again."""
        if self._is_there:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
                self._is_there = False

    def _read(self, batch: int) -> PartialBatch | None:
        try:
            return read_checked(self.path, PartialBatch, "")
        except FileNotFoundError:
            return None
        except (DamagedError, OSError) as error:
            damage = error.damage if isinstance(error, DamagedError) else str(error)
            self._notify(
                f"the sink {self._sink.name} sends the whole batch {batch} again, also events that its server "
                "already has: "
                f"{self.path} is damaged ({damage})"
            )
            return None


def target_digest(sink: Sink) -> str:
    """Equal for nodes of a sink that send the same to the same place."""
    tree: dict[str, object] = msgspec.to_builtins(sink)
    kept = {key: value for key, value in tree.items() if key not in _NOT_THE_PLACE}
    return hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()[:16]
