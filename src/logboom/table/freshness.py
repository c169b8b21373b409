"""Whether a reader of a compacted stream can have missed a deletion. Pure: moments are passed in.

A tombstone stays in the log for at least `delete.retention.ms` after it was appended; then compaction may remove it,
together with every older record of its key before it. A reader that was away for longer keeps the key for ever, and no
error tells it.

So for each partition this keeps the latest moment at which the log is known to have ended at or below what was read:
every record behind was appended later, and its tombstones stay until that moment plus `delete.retention.ms` at least.
The moment is that of asking for the log's end, or of beginning to read from the log's start. Where the next end is
reached before that time is over, no deletion was missed.
"""

from collections.abc import Iterable, Mapping


class Freshness:
    """See the module. Moments are seconds of any one clock that goes on while the machine sleeps."""

    def __init__(self, partitions: Iterable[int], began_at_s: float) -> None:
        self._known_at_s = dict.fromkeys(partitions, began_at_s)
        self._awaited: dict[int, tuple[int, float]] = {}

    def add_partitions(self, partitions: Iterable[int], began_at_s: float) -> None:
        """Partitions that are read from their start from now on."""
        for partition in partitions:
            self._known_at_s.setdefault(partition, began_at_s)

    def expect(self, ends: Mapping[int, int], asked_at_s: float) -> None:
        """Each partition ended there at some moment after `asked_at_s`. While one end is awaited, no other is."""
        for partition, end in ends.items():
            if partition in self._known_at_s:
                self._awaited.setdefault(partition, (end, asked_at_s))

    def reached(self, positions: Mapping[int, int], now_s: float, delete_retention_s: float) -> bool:
        """Note what was read by `now_s`. False where deletions may have been missed in a partition."""
        certain = True
        for partition, (end, asked_at_s) in list(self._awaited.items()):
            if positions[partition] >= end:
                del self._awaited[partition]
                certain = certain and now_s - self._known_at_s[partition] <= delete_retention_s
                self._known_at_s[partition] = max(self._known_at_s[partition], asked_at_s)
        return certain

    @property
    def known_at_s(self) -> float:
        """Everything that was not read yet was appended after this moment, in every partition."""
        return min(self._known_at_s.values())
