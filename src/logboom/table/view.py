"""The state of a table, made of the records of its stream. Pure: records in, changes out.

A view belongs to one life of a stream. It holds the latest record of each key and the position of each partition, which
is the offset of the next record to read. Offsets only grow within a partition, so that the last record that was read of
a key is its latest.

A key belongs to one partition. Where writers used different partitioners it may have values in several; the view then
keeps them all and says so, because there is no order between partitions that would make one of them the latest.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from logboom.table.entry import Change, Entry

Selects = Callable[[bytes], bool]


class _Tombstone(NamedTuple):
    version: int
    partition: int
    seen_at_s: float


class TableView:
    """See the module. Not thread-safe."""

    def __init__(self, partitions: Iterable[int], selects: Selects | None = None) -> None:
        """`selects` says which keys are kept; all without it."""
        self.positions: dict[int, int] = dict.fromkeys(partitions, 0)
        self.starts: dict[int, int] = {}
        """The first offset of each partition's log, as far as it is known."""
        self._selects = selects
        self._entries: dict[bytes, Entry] = {}
        self._rivals: dict[bytes, dict[int, Entry]] = {}
        """All values of each key that has values in more than one partition, by partition."""
        self._tombstones: dict[bytes, _Tombstone] = {}
        """The last deletion of each key in a partition in which it has no value since, oldest first."""

    def __len__(self) -> int:
        return len(self._entries)

    # --- what was read ------------------------------------------------------------------------------------------

    def apply(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None, timestamp_ms: int, now_s: float
    ) -> Change | None:
        """Take in a record; the change it makes, if any.

        A record below the position was read before. One without a key belongs to no table.
        """
        if offset < self.positions[partition]:
            return None
        self.positions[partition] = offset + 1
        if key is None or (self._selects is not None and not self._selects(key)):
            return None
        entry = None if value is None else Entry(key, value, offset, partition, timestamp_ms)
        if entry is None:
            self._tombstones.pop(key, None)  # and to the end, so that they stay in order of time
            self._tombstones[key] = _Tombstone(offset, partition, now_s)
        elif (tombstone := self._tombstones.get(key)) is not None and tombstone.partition == partition:
            del self._tombstones[key]
        held = self._entries.get(key)
        if key in self._rivals or (held is not None and held.partition != partition):
            return self._apply_among_rivals(key, partition, offset, entry)
        if entry is not None:
            self._entries[key] = entry
        elif held is not None:
            del self._entries[key]
        else:
            return None
        return Change(key, entry, offset, partition)

    def _apply_among_rivals(self, key: bytes, partition: int, offset: int, entry: Entry | None) -> Change | None:
        """The same for a key with a value in another partition."""
        held = self._entries[key]
        values = self._rivals.pop(key, None) or {held.partition: held}
        if entry is not None:
            values[partition] = entry
        elif values.pop(partition, None) is None:
            return None
        if len(values) > 1:
            self._rivals[key] = values
        # The same one for every reader, in whatever order it read the partitions.
        self._entries[key] = max(values.values(), key=lambda each: (each.timestamp_ms, each.partition))
        return Change(key, self._entries[key], offset, partition, ambiguous=len(values) > 1)

    def advance(self, partition: int, position: int) -> None:
        """Everything below `position` was read, also where the last offsets hold no record."""
        self.positions[partition] = max(self.positions[partition], position)

    def add_partitions(self, partitions: Iterable[int]) -> None:
        """The stream has grown."""
        for partition in partitions:
            self.positions.setdefault(partition, 0)

    def remove_below(self, starts: Mapping[int, int]) -> list[Change]:
        """The log starts there now: drop values whose records it no longer has; the changes that makes."""
        self.starts.update(starts)
        rivals = [entry for values in self._rivals.values() for entry in values.values()]
        lone = [entry for entry in self._entries.values() if entry.key not in self._rivals]
        gone = [entry for entry in rivals + lone if entry.version < self.starts.get(entry.partition, 0)]
        return [change for entry in gone if (change := self._remove(entry)) is not None]

    def _remove(self, entry: Entry) -> Change | None:
        if entry.key in self._rivals:
            return self._apply_among_rivals(entry.key, entry.partition, entry.version, None)
        del self._entries[entry.key]
        return Change(entry.key, None, None, entry.partition)

    def forget_deletions(self, seen_before_s: float) -> None:
        """Drop what is remembered of deletions that were read before that moment."""
        old = []
        for key, tombstone in self._tombstones.items():
            if tombstone.seen_at_s >= seen_before_s:
                break
            old.append(key)
        for key in old:
            del self._tombstones[key]

    # --- what it holds ------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Entry | None:
        """The value of a key; of an ambiguous one the value with the latest timestamp."""
        return self._entries.get(key)

    def rivals(self, key: bytes) -> list[Entry]:
        """All values of an ambiguous key, in the order of partitions; empty for any other."""
        return [entry for _, entry in sorted(self._rivals.get(key, {}).items())]

    @property
    def ambiguous(self) -> Collection[bytes]:
        """The keys with values in more than one partition."""
        return self._rivals.keys()

    def entries(self, prefix: bytes = b"") -> list[Entry]:
        """All values, or those whose keys begin with `prefix`, in no particular order."""
        if not prefix:
            return list(self._entries.values())
        return [entry for entry in self._entries.values() if entry.key.startswith(prefix)]

    def state(self, entry: Entry) -> Change:
        """A value as a change that tells of it."""
        return Change(entry.key, entry, entry.version, entry.partition, ambiguous=entry.key in self._rivals)

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether everything below these offsets was read, by partition."""
        return all(self.positions.get(partition, -1) >= end for partition, end in ends.items())

    # --- what is different --------------------------------------------------------------------------------------

    def changes_since(self, positions: Mapping[int, int]) -> Iterator[Change]:
        """The state of every key with a record at or above these positions, as far as deletions are remembered."""
        given = set[bytes]()
        for entry in self._entries.values():
            values = self._rivals[entry.key].values() if entry.key in self._rivals else (entry,)
            if any(each.version >= positions.get(each.partition, 0) for each in values):
                given.add(entry.key)
                yield self.state(entry)
        for key, tombstone in self._tombstones.items():
            if key not in given and tombstone.version >= positions.get(tombstone.partition, 0):
                held = self._entries.get(key)
                yield self.state(held) if held else Change(key, None, tombstone.version, tombstone.partition)

    def difference(self, before: "TableView") -> Iterator[Change]:
        """What leads from an earlier view of the table to this one, deletions of which no record is left included."""
        old = before._entries  # noqa: SLF001  # another one of this class
        for key, entry in old.items():
            if key not in self._entries:
                tombstone = self._tombstones.get(key)
                version = tombstone.version if tombstone else None
                yield Change(key, None, version, tombstone.partition if tombstone else entry.partition)
        for key, entry in self._entries.items():
            if old.get(key) != entry or (key in before.ambiguous) != (key in self.ambiguous):
                yield self.state(entry)
