"""What clients did and saw in one run, and what must be true of it.

The checks are those of Jepsen's workload for Kafka, for a log without compaction or transactions, in which every offset
up to the high-water mark holds one record:

- lost write: a record that was acknowledged, or read by anybody, is there at the end, at the same offset;
- inconsistent offsets: an offset never holds two different records, whoever read it and whenever;
- duplicate: no record lies at two offsets (an idempotent producer's retries included), but for those that brokers were
  given twice (`may_repeat`);
- order: the records of one producer lie in the order in which it sent them;
- phantom: nothing is read that nobody sent;
- aborted read: nothing is read that was refused before it was appended, and not sent again;
- poll skip, and polls that go back: a consumer that continues sees every offset once;
- committed offsets: an acknowledged commit is there later, or a newer one;
- deleted records: the log start is never above what may be deleted, and never goes back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from logboom.base.ids import Offset
from logboom.sim.client import TopicPartition

Value = int
"""Every record of a run carries a number of its own."""

Final = Mapping[TopicPartition, Sequence[tuple[Offset, Value]]]
"""All records of each partition after the last restart, in order."""

_NAMED_MAX = 5


@dataclass
class History:
    """Life: that of the run; clients write to it as they go."""

    sent: dict[Value, tuple[str, Sequence[TopicPartition]]] = field(default_factory=dict)
    """Every record that may be in the log: its producer, and the partitions of which one has it, in the order of
    sending."""
    acked: dict[Value, tuple[TopicPartition, Offset]] = field(default_factory=dict)
    acked_in_one: dict[Value, tuple[Sequence[TopicPartition], Offset]] = field(default_factory=dict)
    """Records of which it was said at which offset they are, and not in which of these partitions."""
    acked_below: dict[Value, tuple[TopicPartition, Offset]] = field(default_factory=dict)
    """Records of which a client takes an acknowledgement of later ones for theirs: they are somewhere below those."""
    acked_ends: dict[TopicPartition, Offset] = field(default_factory=dict)
    """Of each partition, the offset behind the last acknowledged record: the high-water mark is never below it."""
    seen: defaultdict[TopicPartition, dict[Offset, Value]] = field(default_factory=lambda: defaultdict(dict))
    """What polls and acknowledgements said of each offset of a partition, first of all."""
    refused: set[Value] = field(default_factory=set)
    """Records that the broker has refused for good, before it appended them."""
    on_committed: Callable[[TopicPartition, Offset], None] = lambda where, end: None
    """Called when a client is told that records up to an offset are committed."""
    violations: list[str] = field(default_factory=list)
    """What was found wrong on the way."""
    starts: dict[TopicPartition, Offset] = field(default_factory=dict)
    """The highest log start offset that a client was told of."""
    starts_max: dict[TopicPartition, Offset] = field(default_factory=dict)
    """How far clients have asked to delete, where nothing else deletes; without an entry, nothing may be deleted."""
    starts_go_back: bool = False
    """Whether a new leader may have records that the one before has deleted, as with several replicas; not those whose
    deletion was acknowledged (`deleted_to`)."""
    deleted_to: dict[TopicPartition, Offset] = field(default_factory=dict)
    """Below which offset a client was told that all records are deleted."""
    waits: dict[tuple[str, int], TopicPartition] = field(default_factory=dict)
    """Where batches go that are sent until they are acknowledged with acks=all, and are not yet: by the name of the
    producer, and how many came before."""
    may_repeat: set[Value] = field(default_factory=set)
    """Records that may lie at two offsets: what stores them was given them twice, and is not to know. Where the first
    one lies counts for all else."""
    may_stray: set[Value] = field(default_factory=set)
    """Records that may lie behind later ones of their producer."""
    repeated: set[Value] = field(default_factory=set)
    """Those of `may_repeat` that do lie at two offsets."""
    polls: int = 0
    commits: int = 0

    @property
    def acknowledged(self) -> int:
        """How many records."""
        return len(self.acked) + len(self.acked_in_one) + len(self.acked_below)

    def violated(self, text: str) -> None:
        """Something happened that must never happen."""
        self.violations.append(text)

    def send(self, producer: str, where: TopicPartition, values: Sequence[Value]) -> None:
        """A producer is about to send records for the first time."""
        self.send_to_one_of(producer, (where,), values)

    def send_to_one_of(self, producer: str, places: Sequence[TopicPartition], values: Sequence[Value]) -> None:
        """The same where others choose the partition, for each record."""
        for value in values:
            self.sent[value] = (producer, places)

    def acknowledge_in_one_of(self, places: Sequence[TopicPartition], offset: int, value: Value) -> None:
        """A broker says that a record is committed at an offset of one of these partitions."""
        if len(places) == 1:
            self.acknowledge(places[0], offset, [value])
        else:
            self.acked_in_one[value] = (places, Offset(offset))

    def acknowledge(self, where: TopicPartition, base_offset: int, values: Sequence[Value]) -> None:
        """The broker says that records are committed, the first of them at `base_offset`."""
        for offset, value in enumerate(values, base_offset):
            self.acked[value] = (where, Offset(offset))
            self._note(where, Offset(offset), value, "acknowledged")
        self.acked_ends[where] = Offset(max(base_offset + len(values), self.acked_ends.get(where, 0)))
        self.on_committed(where, Offset(base_offset + len(values)))

    def acknowledge_below(self, where: TopicPartition, end: int, values: Sequence[Value]) -> None:
        """Records are committed below an offset, as the acknowledgement of later ones of their producer says."""
        for value in values:
            self.acked_below[value] = (where, Offset(end))

    def refuse(self, values: Sequence[Value]) -> None:
        """The broker says that it has not appended records, which are not sent again."""
        self.refused.update(values)

    def poll(self, where: TopicPartition, position: Offset, records: Sequence[tuple[Offset, Value]]) -> None:
        """A consumer at `position` was given records."""
        self.polls += 1
        expected = position
        for offset, value in records:
            if offset != expected:
                self.violated(f"poll skip in {_text(where)}: offset {offset} came where {expected} was next")
            expected = Offset(offset + 1)
            if where not in self.sent.get(value, ("", ()))[1]:
                self.violated(f"phantom in {_text(where)}: {value} at {offset} was never sent there")
            if value in self.refused:
                self.violated(f"aborted read in {_text(where)}: {value} at {offset} was refused")
            self._note(where, offset, value, "read")

    def delete(self, where: TopicPartition, start: Offset) -> None:
        """A client was told that all records below an offset are deleted."""
        self.start_seen(where, start, Offset(0))
        self.deleted_to[where] = max(start, self.deleted_to.get(where, Offset(0)))

    def start_known(self, where: TopicPartition) -> Offset:
        """What nobody who asks for the log start from now on may find it below."""
        known = self.deleted_to if self.starts_go_back else self.starts
        return known.get(where, Offset(0))

    def start_seen(self, where: TopicPartition, start: Offset, known: Offset) -> None:
        """A client was told the log start offset; deleted records never come back.

        `known`: what `start_known` was when it asked. Its answer may have been overtaken by another client's.
        """
        if start < known:
            self.violated(f"the log start of {_text(where)} went back from {known} to {start}")
        if start > self.starts_max.get(where, Offset(0)):
            self.violated(f"{_text(where)} starts at {start}, which nobody asked for")
        self.starts[where] = max(start, self.starts.get(where, Offset(0)))

    @property
    def deleted(self) -> int:
        """How many acknowledged records lie below the log start."""
        return sum(offset < self.starts.get(where, 0) for where, offset in self.acked.values())

    def _note(self, where: TopicPartition, offset: Offset, value: Value, how: str) -> None:
        known = self.seen[where].setdefault(offset, value)
        if known != value:
            self.violated(
                f"inconsistent offsets in {_text(where)}: {offset} held {known}, then {value} was {how} there"
            )

    def check_all_kept(self, final: Final) -> None:
        """Whatever was sent is there, whether anybody was told so or not, but for what was refused."""
        there = {value for records in final.values() for _, value in records}
        lost = [value for value in self.sent if value not in there and value not in self.refused]
        if lost:
            self.violated(f"{len(lost)} of {len(self.sent)} that were sent are not there, such as {lost[0]}")

    def check(self, final: Final) -> list[str]:
        """All that was wrong with the run; the last `start_seen` of each partition is the one of its final records."""
        return shortened(
            [
                *self.violations,
                *_lost(self, final),
                *_duplicates(self, final),
                *_disorder(self, final),
                *_aborted(self, final),
            ]
        )


def shortened(violations: Sequence[str]) -> list[str]:
    """The first few, and how many more there are: one fault of the broker violates much."""
    more = len(violations) - _NAMED_MAX
    return [*violations[:_NAMED_MAX], *([f"and {more} more"] if more > 0 else [])]


def _lost(history: History, final: Final) -> Iterator[str]:
    """Records that somebody was told of and that are not there any more."""
    held = {(where, offset): value for where, records in final.items() for offset, value in records}
    acked = {(where, offset) for where, offset in history.acked.values()}
    for where, seen in history.seen.items():
        start = history.starts.get(where, Offset(0))
        for offset, value in seen.items():
            found = held.get((where, offset))
            if offset >= start and found != value:  # below it, it is deleted
                how = "acknowledged" if (where, offset) in acked else "read"
                yield f"lost write in {_text(where)}: {value} was {how} at {offset}, where {found} is"
    for value, (places, offset) in history.acked_in_one.items():
        if all(held.get((where, offset)) != value for where in places):
            yield f"lost write: {value} was acknowledged at {offset} of one of {', '.join(map(_text, places))}"
    yield from _lost_below(history, final)


def _lost_below(history: History, final: Final) -> Iterator[str]:
    below = {(where, value): offset for where, records in final.items() for offset, value in records}
    for value, (where, end) in history.acked_below.items():
        if history.starts.get(where, Offset(0)):
            continue  # it may be among what was deleted
        if below.get((where, value), end) >= end:
            yield f"lost write in {_text(where)}: {value} was acknowledged below {end}, and is not there"


def _duplicates(history: History, final: Final) -> Iterator[str]:
    places: dict[Value, tuple[TopicPartition, Offset]] = {}
    for where, records in final.items():
        for offset, value in records:
            if value in places and value in history.may_repeat:
                history.repeated.add(value)
            elif value in places:
                first, at = places[value]
                yield f"duplicate: {value} is in {_text(first)} at {at} and in {_text(where)} at {offset}"
            places.setdefault(value, (where, offset))


def _disorder(history: History, final: Final) -> Iterator[str]:
    """Producers number their records as they send them."""
    for where, records in final.items():
        last: dict[str, Value] = {}
        known = set[Value]()
        for offset, value in records:
            if value in history.may_stray or (value in history.may_repeat and value in known):
                continue
            known.add(value)
            producer = history.sent.get(value, ("", ()))[0]
            if value < last.get(producer, -1):
                yield f"order in {_text(where)}: {value} of {producer} lies behind {last[producer]}, at {offset}"
            last[producer] = value


def _aborted(history: History, final: Final) -> Iterator[str]:
    for where, records in final.items():
        for offset, value in records:
            if value in history.refused:
                yield f"aborted write in {_text(where)}: {value} is at {offset}, and was refused"


def _text(where: TopicPartition) -> str:
    return f"{where.stream}-{where.partition}"
