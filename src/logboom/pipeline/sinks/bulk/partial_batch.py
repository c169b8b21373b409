"""Records which part of a batch was delivered by failed attempts, so that the next start sends only the rest.

It is one file of a delivery's checkpoint, `partial.json`, written when an attempt fails after a part of its batch, and
removed when the batch is done. It is valid only for the same streams (by id) and for a sink that sends to the same
target. Without it, or if it is damaged, the whole batch is sent again.

Knows a file of the delivery's checkpoint and the sink's plan node. Must not know servers or Spark.
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
"""Keys of a sink's node that only affect when and how often it sends, not what or where."""


class PartialBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The delivered part of a batch."""

    batch: int
    target: str
    """`target_digest` of the sink that delivered it."""
    streams: dict[str, str]
    """Id by name of the streams that the offsets in `done` belong to."""
    done: Done


class PartialBatches:
    """The file of one delivery."""

    def __init__(self, checkpoint: Path, sink: Sink, streams: Mapping[str, str], notify: Callable[[str], None]) -> None:
        """`streams`: the id of each stream that the sink reads, by name. `notify` gets a message if the file is
        damaged."""
        self.path = checkpoint / "partial.json"
        self._sink, self._streams, self._notify = sink, dict(streams), notify
        self._is_there = self.path.exists()
        self._noted = Done()

    def done(self, batch: int) -> Done:
        """What attempts before this start have delivered of a batch."""
        self._noted = Done()
        if not self._is_there:
            return self._noted
        found = self._read(batch)
        if found is None or found.batch != batch or found.target != target_digest(self._sink):
            self.remove()
            return self._noted
        # The offsets of a stream that was deleted and created again belong to other records.
        known = {name for name, stream_id in found.streams.items() if self._streams.get(name) == stream_id}
        ranges = found.done.ranges.items()
        self._noted = Done({place: some for place, some in ranges if place.rpartition("/")[0] in known})
        return self._noted

    def note(self, batch: int, done: Done) -> bool:
        """Record durably what was delivered. False if that was recorded before."""
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
        """The batch is done. If removing the file fails, it does no harm: it belongs to a batch that never comes
        again."""
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
    """A digest that is equal for nodes that send the same data to the same target."""
    tree: dict[str, object] = msgspec.to_builtins(sink)
    kept = {key: value for key, value in tree.items() if key not in _NOT_THE_PLACE}
    return hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()[:16]
