"""The way of lines into one partition: batches in a row, each with its sequence, resent until they are in.

Pure but for the encoding of batches: it knows no sockets and no clock. The broker takes batches of a producer only in
the order of their sequences and each one once, so a batch whose fate is unknown is sent again as it is, and nothing
behind it can be taken before it. What a broker refuses for good is handed back with all that lies behind it; where the
fate of any of that is unknown, the producer has come to its end (`Outcome.DEAD`), since its sequences are.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from confluent_kafka import KafkaError

from logboom.client.codes import OUT_OF_ORDER, PRODUCER_LOST, TAKEN, TOO_LARGE, ErrorCode
from logboom.client.messages import ProducerId
from logboom.collector.encode import MAX_BATCH_RECORDS, Run, encode_run
from logboom.collector.shipment import DeliveryError, Shipment
from logboom.records import Codec, add_to_sequence, seal_batch

MAX_IN_FLIGHT: Final = 5
"""So many batches of a producer a broker remembers."""
BATCH_BYTES: Final = 1_000_000
"""A batch is made to be no longer than this, which every broker takes by default."""
ZSTD_LEVEL: Final = 1
"""On lines it saves a quarter of the time and comes out no longer than level 3: most of a record repeats."""
_LINES_BYTES_MAX: Final = 2_000_000
_HANDED_BACK: Final = KafkaError(KafkaError._PURGE_QUEUE)  # noqa: SLF001

_FOR_GOOD: Final = TOO_LARGE | {
    ErrorCode.invalid_topic_exception,
    ErrorCode.topic_authorization_failed,
    ErrorCode.cluster_authorization_failed,
    ErrorCode.invalid_timestamp,
    ErrorCode.invalid_record,
    ErrorCode.invalid_request,
    ErrorCode.policy_violation,
    ErrorCode.unsupported_compression_type,
    ErrorCode.unsupported_for_message_format,
    ErrorCode.unsupported_version,
}
"""A broker that says these has written nothing. After anything else the batch is sent again as it is."""


class Outcome(Enum):
    """What came of an answer."""

    GOING_ON = auto()
    AGAIN = auto()
    """All that is left is to be sent again, after a pause."""
    DEAD = auto()
    """The producer's sequences are of no use any more."""


@dataclass(slots=True)
class Piece:
    """Records of a shipment, one behind the other."""

    shipment: Shipment
    first: int
    count: int

    @property
    def lines_bytes(self) -> int:
        """About as many bytes as its lines have."""
        return self.shipment.size_bytes * self.count // max(1, self.shipment.count) + self.count

    def cut(self, count: int) -> "Piece":
        """Take so many from its front."""
        front = Piece(self.shipment, self.first, count)
        self.first += count
        self.count -= count
        return front


@dataclass(slots=True, eq=False)
class Batch:
    """What is sent in one request."""

    pieces: list[Piece]
    count: int
    sequence: int
    content: bytearray
    under_way: bool = False
    taken: bool = False
    refusal: DeliveryError | None = None


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """See the module."""

    stream: str
    index: int
    leader: int = -1
    waiting: deque[Piece] = field(default_factory=deque)
    batches: deque[Batch] = field(default_factory=deque)
    """Made and not known to be in, oldest first."""
    pause_until_s: float = 0.0
    pause_s: float = 0.0
    _sequence: int = 0
    _ratio: float = 1.0
    """Bytes of a batch for each byte of its lines, lately."""
    _batch_bytes: int = BATCH_BYTES
    _stopped: bool = False
    """Something failed: nothing is sent until the answers to all that is under way are there."""
    _lost: bool = False
    """The fate of something that was sent since is unknown."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way."""
        return not self.waiting and not self.batches

    def next_batch(self, codec: Codec, producer: ProducerId, level: int = ZSTD_LEVEL) -> Batch | None:
        """What is to be sent now, in this order; None where nothing may be."""
        if self._stopped:
            return None
        for batch in self.batches:
            if not batch.under_way and not batch.taken:
                batch.refusal = None
                return batch
        if not self.waiting or len(self.batches) >= MAX_IN_FLIGHT:
            return None
        if self.batches and not self._is_full_batch_waiting():
            return None  # what comes meanwhile goes along with it
        batch = self._make(codec, producer, level)
        self.batches.append(batch)
        return batch

    def _room_bytes(self) -> float:
        return min(_LINES_BYTES_MAX, self._batch_bytes / self._ratio)

    def _is_full_batch_waiting(self) -> bool:
        room = self._room_bytes()
        records = 0
        for piece in self.waiting:
            room -= piece.lines_bytes
            records += piece.count
            if room <= 0 or records >= MAX_BATCH_RECORDS:
                return True
        return False

    def _make(self, codec: Codec, producer: ProducerId, level: int) -> Batch:
        pieces = list(self._take(self._room_bytes()))
        base_time_ms = pieces[0].shipment.time_ms
        encoded: list[bytes] = []
        count = lines_bytes = 0
        for piece in pieces:
            encoded.append(encode_run(_run(piece), count, base_time_ms))
            count += piece.count
            lines_bytes += piece.lines_bytes
        content = seal_batch(
            b"".join(encoded),
            count,
            codec=codec,
            times_ms=(base_time_ms, max(piece.shipment.time_ms for piece in pieces)),
            producer=(*producer, self._sequence),
            zstd_level=level,
        )
        self._ratio = max(0.05, len(content) / max(1, lines_bytes))
        batch = Batch(pieces, count, self._sequence, content)
        self._sequence = add_to_sequence(self._sequence, count)
        return batch

    def _take(self, room: float) -> list[Piece]:
        taken: list[Piece] = []
        records = MAX_BATCH_RECORDS
        while self.waiting and records and (room > 0 or not taken):
            piece = self.waiting[0]
            fits = piece.count
            if piece.lines_bytes > room:
                fits = max(1 if not taken else 0, int(piece.count * max(0.0, room) / piece.lines_bytes))
            fits = min(fits, records)
            if not fits:
                break
            taken.append(piece.cut(fits))
            if not piece.count:
                self.waiting.popleft()
            room -= taken[-1].lines_bytes
            records -= fits
        return taken

    # --- answers ---

    def answered(self, batch: Batch, code: ErrorCode) -> Outcome:
        """The broker said this of a batch."""
        batch.under_way = False
        first = self._first_left()
        if code in TAKEN:
            batch.taken = True
        elif code == OUT_OF_ORDER and batch is not first:
            self._stopped = True  # something before it is to be sent again
        elif code == OUT_OF_ORDER or code in PRODUCER_LOST:
            return Outcome.DEAD
        else:
            self._stopped = True
            if code in _FOR_GOOD:
                batch.refusal = KafkaError(code)
        return self._concluded()

    def lost(self, batch: Batch) -> Outcome:
        """No answer will come: the connection is gone."""
        batch.under_way = False
        self._stopped = self._lost = True
        return self._concluded()

    def _first_left(self) -> Batch | None:
        return next((batch for batch in self.batches if not batch.taken), None)

    def _concluded(self) -> Outcome:
        while self.batches and self.batches[0].taken:
            for piece in self.batches.popleft().pieces:
                piece.shipment.report_many(None, piece.count)
            self.pause_s = 0.0
        if not self._stopped or any(batch.under_way for batch in self.batches):
            return Outcome.GOING_ON
        lost, self._lost, self._stopped = self._lost, False, False
        first = self._first_left()
        if first is None or first.refusal is None:
            return Outcome.AGAIN
        if lost:
            return Outcome.DEAD
        if first.refusal.code() in TOO_LARGE and first.count > 1:
            self._make_smaller(first)
        else:
            self._hand_back(first, first.refusal)
        return Outcome.GOING_ON

    def _make_smaller(self, first: Batch) -> None:
        """The stream takes less at a time than most: begin again with smaller batches from there on."""
        self._batch_bytes = max(1, len(first.content) // 2)
        self._sequence = first.sequence
        for batch in reversed(self.batches):
            self.waiting.extendleft(reversed(batch.pieces))
        self.batches.clear()

    def _hand_back(self, first: Batch, refusal: DeliveryError) -> None:
        """Its records are refused; none of those behind it is in, and their order is the sender's affair."""
        self._sequence = first.sequence
        batches, self.batches = self.batches, deque()
        waiting, self.waiting = self.waiting, deque()
        for batch in batches:
            for piece in batch.pieces:
                piece.shipment.report_many(refusal if batch is first else _HANDED_BACK, piece.count)
        for piece in waiting:
            piece.shipment.report_many(_HANDED_BACK, piece.count)

    def purge(self, why: DeliveryError) -> None:
        """Forget everything and say so."""
        pieces = [piece for batch in self.batches for piece in batch.pieces] + list(self.waiting)
        self.batches.clear()
        self.waiting.clear()
        for piece in pieces:
            piece.shipment.report_many(why, piece.count)


def _run(piece: Piece) -> Run:
    shipment = piece.shipment
    lane = shipment.lane
    time_ms = shipment.time_ms
    return Run(lane.key, lane.headers(time_ms), shipment.lines, piece.first, piece.count, time_ms)
