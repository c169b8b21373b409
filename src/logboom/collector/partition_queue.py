"""The records of one partition: cut into batches, given their sequence numbers, reported once they are acknowledged.

Pure but for the encoding of batches: it knows no sockets and no clock. Sequences, resending and the meaning of answers
are `logboom.client.producer`'s. What a broker refuses for good is handed back with all that lies behind it, so that
the sender can put it in order again; a batch that is too large for its stream is split into smaller ones.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError

from logboom.client.codes import TOO_LARGE, ErrorCode
from logboom.client.messages import ProducerId
from logboom.client.producer import Outcome, PartitionProducer, SequencedBatch, Step
from logboom.collector.encode import MAX_BATCH_RECORDS, Run, encode_run
from logboom.collector.pending_send import DeliveryError, PendingSend
from logboom.records import Codec, seal_batch

BATCH_BYTES: Final = 1_000_000
"""A batch is made to be no longer than this, which every broker takes by default."""
ZSTD_LEVEL: Final = 1
"""On lines it saves a quarter of the time and comes out no longer than level 3: most of a record repeats."""
_LINES_BYTES_MAX: Final = 2_000_000
_HANDED_BACK: Final = KafkaError(KafkaError._PURGE_QUEUE)  # noqa: SLF001


@dataclass(slots=True)
class RecordRange:
    """Records of a pending send, one behind the other."""

    pending_send: PendingSend
    first: int
    count: int

    @property
    def lines_bytes(self) -> int:
        """About as many bytes as its lines have."""
        return self.pending_send.size_bytes * self.count // max(1, self.pending_send.count) + self.count

    def cut(self, count: int) -> "RecordRange":
        """Take so many from its front."""
        front = RecordRange(self.pending_send, self.first, count)
        self.first += count
        self.count -= count
        return front


@dataclass(frozen=True, slots=True)
class Sealed:
    """What is sent in one request, and which records it is made of."""

    record_ranges: list[RecordRange]
    encoded: bytearray


Batch = SequencedBatch[Sealed]


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """See the module."""

    stream: str
    index: int
    leader: int = -1
    waiting: deque[RecordRange] = field(default_factory=deque)
    producer: PartitionProducer[Sealed] = field(default_factory=PartitionProducer)
    """Batches that are made and not known to be in."""
    pause_until_s: float = 0.0
    pause_s: float = 0.0
    _ratio: float = 1.0
    """Bytes of a batch for each byte of its lines, lately."""
    _batch_bytes: int = BATCH_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way."""
        return not self.waiting and not self.producer.batches

    def next_batch(self, codec: Codec, producer: ProducerId, level: int = ZSTD_LEVEL) -> Batch | None:
        """What is to be sent now, in this order, and counts as under way from here on; None if nothing may be."""
        batch = self.producer.next_to_send()
        if batch is None:
            if not self.waiting or self.producer.is_full:
                return None
            if self.producer.batches and not self._is_full_batch_waiting():
                return None  # what comes meanwhile goes along with it
            batch = self._make(codec, producer, level)
        self.producer.sent(batch)
        return batch

    def _room_bytes(self) -> float:
        return min(_LINES_BYTES_MAX, self._batch_bytes / self._ratio)

    def _is_full_batch_waiting(self) -> bool:
        room = self._room_bytes()
        records = 0
        for record_range in self.waiting:
            room -= record_range.lines_bytes
            records += record_range.count
            if room <= 0 or records >= MAX_BATCH_RECORDS:
                return True
        return False

    def _make(self, codec: Codec, producer: ProducerId, level: int) -> Batch:
        record_ranges = list(self._take(self._room_bytes()))
        base_time_ms = record_ranges[0].pending_send.time_ms
        encoded: list[bytes] = []
        count = lines_bytes = 0
        for record_range in record_ranges:
            encoded.append(encode_run(_run(record_range), count, base_time_ms))
            count += record_range.count
            lines_bytes += record_range.lines_bytes
        content = seal_batch(
            b"".join(encoded),
            count,
            codec=codec,
            times_ms=(base_time_ms, max(record_range.pending_send.time_ms for record_range in record_ranges)),
            producer=(*producer, self.producer.next_sequence),
            level=level if codec is Codec.ZSTD else None,
        )
        self._ratio = max(0.05, len(content) / max(1, lines_bytes))
        return self.producer.append(Sealed(record_ranges, content), count)

    def _take(self, room: float) -> list[RecordRange]:
        taken: list[RecordRange] = []
        records = MAX_BATCH_RECORDS
        while self.waiting and records and (room > 0 or not taken):
            record_range = self.waiting[0]
            fits = record_range.count
            if record_range.lines_bytes > room:
                fits = max(1 if not taken else 0, int(record_range.count * max(0.0, room) / record_range.lines_bytes))
            fits = min(fits, records)
            if not fits:
                break
            taken.append(record_range.cut(fits))
            if not record_range.count:
                self.waiting.popleft()
            room -= taken[-1].lines_bytes
            records -= fits
        return taken

    # --- answers ---

    def answered(self, batch: Batch, code: ErrorCode) -> Outcome:
        """The broker said this of a batch. What is refused is dealt with here, so REFUSED does not come out."""
        return self._concluded(self.producer.answered(batch, code))

    def lost(self, batch: Batch) -> Outcome:
        """No answer will come: the connection is gone."""
        return self._concluded(self.producer.lost(batch))

    def _concluded(self, step: Step[Sealed]) -> Outcome:
        for batch in step.acknowledged:
            for record_range in batch.content.record_ranges:
                record_range.pending_send.report_many(None, record_range.count)
            self.pause_s = 0.0
        if step.outcome is not Outcome.REFUSED:
            return step.outcome
        batches = self.producer.withdraw()
        refusal = batches[0].refusal
        assert refusal is not None
        if refusal in TOO_LARGE and batches[0].count > 1:
            self._make_smaller(batches)
        else:
            self._hand_back(batches, KafkaError(refusal))
        return Outcome.GOING_ON

    def _make_smaller(self, batches: list[Batch]) -> None:
        """The stream takes less at a time than most: begin again with smaller batches from the first on."""
        self._batch_bytes = max(1, len(batches[0].content.encoded) // 2)
        for batch in reversed(batches):
            self.waiting.extendleft(reversed(batch.content.record_ranges))

    def _hand_back(self, batches: list[Batch], refusal: DeliveryError) -> None:
        """The first one's records are refused; none of those behind it is in: the sender puts them in order again."""
        waiting, self.waiting = self.waiting, deque()
        for batch in batches:
            for record_range in batch.content.record_ranges:
                record_range.pending_send.report_many(
                    refusal if batch is batches[0] else _HANDED_BACK, record_range.count
                )
        for record_range in waiting:
            record_range.pending_send.report_many(_HANDED_BACK, record_range.count)

    def purge(self, why: DeliveryError) -> None:
        """Forget everything and say so."""
        record_ranges = [
            record_range for batch in self.producer.withdraw() for record_range in batch.content.record_ranges
        ] + list(self.waiting)
        self.waiting.clear()
        for record_range in record_ranges:
            record_range.pending_send.report_many(why, record_range.count)


def _run(record_range: RecordRange) -> Run:
    pending_send = record_range.pending_send
    source = pending_send.source
    time_ms = pending_send.time_ms
    return Run(
        source.key,
        source.headers(time_ms, pending_send.content_id),
        pending_send.lines,
        record_range.first,
        record_range.count,
        time_ms,
    )
