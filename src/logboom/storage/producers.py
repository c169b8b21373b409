"""The idempotence state of a partition: the last batches of each producer (KIP-98, KIP-360; ProducerStateManager).

Pure. Entries are immutable and replaced whole, so a shallow copy of the table is a snapshot, and the entry before a
change is all that is needed to take it back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from logboom.base.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from logboom.base.ids import Offset, ProducerId
from logboom.records import MAX_SEQUENCE, BatchHeader
from logboom.storage.small_files import frame, unframe

WINDOW: Final = 5
"""Batches remembered per producer: what a client may have in flight."""

_TAG: Final = b"LBPS"
_VERSION: Final = 1
_SNAPSHOT: Final = Struct(">qI")
_PRODUCER: Final = Struct(">qhqB")
_BATCH: Final = Struct(">iiqi")


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """One batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset_delta: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer's epoch and its last batches of that epoch, oldest first."""

    epoch: int
    batches: tuple[WrittenBatch, ...]
    seen_ms: int


class FirstSequence(NamedTuple):
    """The first sequence of some batches of a producer."""

    producer: int
    epoch: int
    sequence: int


Undo = list[tuple[ProducerId, ProducerState | None]]
"""Undo entries of recorded batches, oldest first: a producer and its previous state, None for a new one."""


def _sequence_behind(last: int) -> int:
    return 0 if last == MAX_SEQUENCE else last + 1


def _continues(state: ProducerState, header: BatchHeader) -> bool:
    return bool(state.batches) and header.base_sequence == _sequence_behind(state.batches[-1].last_sequence)


class ProducerTable:
    """The producers, the one that has been silent for longest first."""

    __slots__ = ("_producers", "expiry_ms", "max_producers")

    def __init__(self, expiry_ms: int, max_producers: int) -> None:
        self.expiry_ms = expiry_ms
        self.max_producers = max_producers
        self._producers: dict[ProducerId, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[ProducerId, ProducerState]]:
        return iter(list(self._producers.items()))

    def get(self, producer: ProducerId) -> ProducerState | None:
        return self._producers.get(producer)

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Whether the batch may be appended: None if so, the first copy if it is a duplicate.

        InvalidProducerEpochError for an older epoch, OutOfOrderSequenceError for a sequence that does not follow. A
        producer that is not known, new or forgotten, may begin anywhere.

        A batch below those that are remembered is out of order, too, as in Kafka (`ProducerAppendInfo.checkSequence`).
        No broker of Kafka answers DUPLICATE_SEQUENCE_NUMBER, which clients count as success: since a producer may begin
        anywhere, nothing shows that the batch was ever written.
        """
        state = self._producers.get(ProducerId(header.producer_id))
        if state is None:
            return None
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpochError(
                f"Producer {header.producer_id} has epoch {state.epoch} here; the batch has {header.producer_epoch}."
            )
        first = header.base_sequence
        if header.producer_epoch > state.epoch:
            if first != 0:
                raise OutOfOrderSequenceError(
                    f"Producer {header.producer_id} begins the epoch {header.producer_epoch} with sequence {first}."
                )
            return None
        if not state.batches:
            return None
        if first == _sequence_behind(last := state.batches[-1].last_sequence):
            return None
        for batch in state.batches:
            if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                return batch
        raise OutOfOrderSequenceError(f"Producer {header.producer_id} sent sequence {first} after {last}.")

    def record(self, header: BatchHeader, base_offset: Offset, now_ms: int, undo: Undo | None = None) -> None:
        """Record an appended batch; the state that it displaces is added to `undo`, for `revert`."""
        producers = self._producers
        producer = ProducerId(header.producer_id)
        written = WrittenBatch(header.base_sequence, header.last_sequence, base_offset, header.last_offset_delta)
        before = producers.pop(producer, None)
        if undo is not None:
            undo.append((producer, before))
        batches: tuple[WrittenBatch, ...] = (written,)
        # Not after a gap, which recovery meets where the newest snapshot is unreadable and batches after an older one
        # were deleted: those before the gap are not the last ones any more.
        if before is not None and before.epoch == header.producer_epoch and _continues(before, header):
            batches = (*before.batches[1 - WINDOW :], written)
        producers[producer] = ProducerState(header.producer_epoch, batches, now_ms)
        if len(producers) > self.max_producers:
            oldest = next(iter(producers))
            if undo is not None:
                undo.append((oldest, producers[oldest]))
            del producers[oldest]

    def first_of(self, undo: Undo) -> Iterator[FirstSequence]:
        """The first sequence of each producer among the batches that `revert` is going to take back."""
        for producer, before in dict(reversed(undo)).items():
            state = self._producers.get(producer)
            known = () if before is None else before.batches
            if state is not None:
                new = next((one for one in state.batches if one not in known), None)
                if new is not None:
                    yield FirstSequence(producer, state.epoch, new.first_sequence)

    def revert(self, undo: Undo) -> None:
        """Take back what `record` did, the newest first. A log takes back its newest batches first, too."""
        if not undo:
            return
        producers = self._producers
        for producer, before in reversed(undo):
            if before is None:
                producers.pop(producer, None)
            else:
                producers[producer] = before
        # The order decides which producer is forgotten first. It is that of their last batches, which rise in the log.
        last_offset = sorted(producers.items(), key=lambda item: item[1].batches[-1].base_offset)
        self._producers = dict(last_offset)

    def clear(self) -> None:
        """Forget all producers."""
        self._producers.clear()

    def expire(self, now_ms: int) -> None:
        """Forget the producers that were silent for longer than the expiry."""
        limit = now_ms - self.expiry_ms
        producers = self._producers
        while producers and producers[oldest := next(iter(producers))].seen_ms < limit:
            del producers[oldest]

    def copy(self) -> "ProducerTable":
        """A table with the same entries: a shallow copy."""
        table = ProducerTable(self.expiry_ms, self.max_producers)
        table._producers = self._producers.copy()
        return table

    def to_bytes(self, end: Offset) -> bytes:
        """A snapshot of the table as of the log end offset `end`."""
        parts = [_SNAPSHOT.pack(end, len(self._producers))]
        for producer, state in self._producers.items():
            parts.append(_PRODUCER.pack(producer, state.epoch, state.seen_ms, len(state.batches)))
            parts += [
                _BATCH.pack(b.first_sequence, b.last_sequence, b.base_offset, b.last_offset_delta)
                for b in state.batches
            ]
        return frame(_TAG, _VERSION, b"".join(parts))

    def load(self, data: bytes, end: Offset) -> bool:
        """Take the table from a snapshot made at `end`; False, and nothing changes, where the bytes are none."""
        payload = unframe(_TAG, _VERSION, data)
        if payload is None or len(payload) < _SNAPSHOT.size:
            return False
        found_end, count = _SNAPSHOT.unpack_from(payload)
        if found_end != end:
            return False
        at = _SNAPSHOT.size
        producers: dict[ProducerId, ProducerState] = {}
        for _ in range(count):
            producer, epoch, seen_ms, batches = _PRODUCER.unpack_from(payload, at)
            at += _PRODUCER.size
            written = []
            for _ in range(batches):
                first, last, base_offset, delta = _BATCH.unpack_from(payload, at)
                written.append(WrittenBatch(first, last, Offset(base_offset), delta))
                at += _BATCH.size
            producers[ProducerId(producer)] = ProducerState(epoch, tuple(written), seen_ms)
        self._producers = producers
        return True
