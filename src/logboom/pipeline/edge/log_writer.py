"""Writes batches of records to the log: in order, idempotently, and with retries until it succeeds.

`logboom.client.producer` handles sequences and interprets answers; this module does the I/O. Must not know what records
hold. A thread of its own sends while the next records are made. Each partition has at most one batch in flight, so an
attempt that ends at any point leaves a prefix of its records in every partition, whichever broker leads it and whatever
fails.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from logboom.base.ports import Bytes
from logboom.client.codes import TOO_LARGE, ErrorCode
from logboom.client.link import Dialogue, LinkError, addresses_of
from logboom.client.messages import (
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    AnswerError,
    Api,
    ProducerId,
    StreamMetadata,
    TopicPartition,
    metadata_answer,
    metadata_request,
    produce_answer,
    produce_request,
    producer_id_answer,
    producer_id_request,
)
from logboom.client.producer import Outcome, PartitionProducer, SequencedBatch
from logboom.pipeline.edge.record_columns import Packed
from logboom.pipeline.errors import PipelineError
from logboom.records import (
    HEADER_BYTES,
    Codec,
    Record,
    build_batch,
    compress,
    iter_records,
    read_header,
    seal_batch,
)

Answer = TypeVar("Answer")

_CLIENT: Final = "logboom-pipeline"
WAITING_MAX_BYTES: Final = 32 * 1024 * 1024
"""Above this, `put` waits until some records are in the log."""
_UNKNOWN_STREAM_MAX_S: Final = 60.0
_PAUSE_MIN_S: Final = 0.05
_PAUSE_MAX_S: Final = 2.0
_UNPACKED_MAX_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class _Batch:
    """Records on their way to one partition."""

    count: int
    timestamp_ms: int
    compressed: bytes
    head: bytes = b""
    """The header with the producer's id and the sequence; empty until the batch is first sent with this id."""

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + len(self.compressed)

    def stamp(self, producer: ProducerId, sequence: int) -> None:
        """Writes the head."""
        times_ms = (self.timestamp_ms, self.timestamp_ms)
        whole = seal_batch(  # without compression: the records are already compressed
            self.compressed, self.count, attributes=Codec.LZ4, times_ms=times_ms, producer=(*producer, sequence)
        )
        self.head = bytes(whole[:HEADER_BYTES])

    def halves(self) -> "tuple[_Batch, _Batch]":
        """Splits the batch for a stream with a smaller size limit."""
        whole = self.head + self.compressed
        records = list(iter_records(whole, 0, read_header(whole), _UNPACKED_MAX_BYTES))
        first, second = records[: self.count // 2], records[self.count // 2 :]
        return self._of(first), self._of(second)

    def _of(self, records: Sequence[Record]) -> "_Batch":
        built = bytes(build_batch(records, codec=Codec.LZ4))
        return _Batch(len(records), self.timestamp_ms, built[HEADER_BYTES:])


class LogWriter:
    """One producer. One thread calls `put` and `settle`; another thread sends."""

    def __init__(self, bootstrap: str) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[TopicPartition, deque[_Batch]] = {}
        self._waiting_bytes = 0
        self._fault: PipelineError | None = None
        self._closing = False
        self._sender = _Sender(addresses_of(bootstrap))
        self._thread = threading.Thread(target=self._run, name="logboom-log-writer", daemon=True)
        self._thread.start()

    def put(self, tp: TopicPartition, packed: Packed) -> None:
        """Queues records for a partition after those queued before; waits if too much is in flight."""
        batch = _Batch(packed.count, time.time_ns() // 1_000_000, compress(Codec.LZ4, packed.records))
        with self._changed:
            self._changed.wait_for(lambda: self._fault is not None or self._waiting_bytes < WAITING_MAX_BYTES)
            self._check()
            self._waiting.setdefault(tp, deque()).append(batch)
            self._waiting_bytes += batch.size_bytes
            self._changed.notify_all()

    def settle(self) -> None:
        """Returns when everything is committed; PipelineError if something can never be committed."""
        with self._changed:
            self._changed.wait_for(lambda: self._fault is not None or not self._waiting)
            self._check()

    def close(self) -> None:
        """Ends the thread; queued records are not sent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def failed(self) -> bool:
        """Whether the writer has failed or was closed."""
        return self._fault is not None

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        pause_s = 0.0
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing or bool(self._waiting))
                    if self._closing:
                        return
                    next_ones = {tp: batches[0] for tp, batches in self._waiting.items()}
                answers = self._sender.send(next_ones)
                moved = self._settled(answers)
                pause_s = 0.0 if moved else min(max(2 * pause_s, _PAUSE_MIN_S), _PAUSE_MAX_S)
                time.sleep(pause_s)
        except Exception as error:  # noqa: BLE001 - the outermost loop of a thread: `put` and `settle` raise it
            with self._changed:
                self._fault = error if isinstance(error, PipelineError) else PipelineError(f"sending failed: {error!r}")
                self._changed.notify_all()
        finally:
            self._sender.close()

    def _settled(self, answers: "Mapping[TopicPartition, _Settled]") -> bool:
        """Removes finished batches from the queues; returns whether there were any."""
        with self._changed:
            for tp, settled in answers.items():
                batches = self._waiting[tp]
                gone = batches.popleft()
                batches.extendleft(reversed(settled.instead))
                more = sum(batch.size_bytes for batch in settled.instead)
                self._waiting_bytes += more - gone.size_bytes
                if not batches:
                    del self._waiting[tp]
            self._changed.notify_all()
        return bool(answers)


@dataclass(frozen=True, slots=True)
class _Settled:
    """A batch is finished, except for the batches that replace it."""

    instead: tuple[_Batch, ...] = ()


class _Sender:
    """Sends batches to the leaders of their partitions, once per call, and handles the answers."""

    def __init__(self, bootstrap: Sequence[str]) -> None:
        self._bootstrap = bootstrap
        self._dialogues: dict[str, Dialogue] = {}
        self._leaders: dict[TopicPartition, str] = {}
        self._producer: ProducerId | None = None
        self._partitions: dict[TopicPartition, PartitionProducer[_Batch]] = {}
        self._unknown_since: dict[str, float] = {}

    def close(self) -> None:
        """Closes all connections."""
        for dialogue in self._dialogues.values():
            dialogue.close()

    def send(self, batches: Mapping[TopicPartition, _Batch]) -> dict[TopicPartition, _Settled]:
        """The outcomes of the batches; batches without an answer have to be sent again."""
        self._learn_leaders(batches)
        if self._producer is None and not self._init_producer():
            return {}
        found: dict[TopicPartition, _Settled] = {}
        by_leader: dict[str, dict[TopicPartition, SequencedBatch[_Batch]]] = {}
        for tp, batch in batches.items():
            if tp in self._leaders:
                by_leader.setdefault(self._leaders[tp], {})[tp] = self._sequenced(tp, batch)
        for address, some in by_leader.items():
            if self._producer is not None:
                found.update(self._send_to(address, some, self._producer))
        if self._producer is None:  # sequences of the next id begin at 0 in all partitions
            for partition in self._partitions.values():
                partition.restart()
                for one in partition.batches:
                    one.content.head = b""
        return found

    def _sequenced(self, tp: TopicPartition, batch: _Batch) -> SequencedBatch[_Batch]:
        """The batch with its sequence, which stays the same in all retries with this producer id."""
        partition = self._partitions.setdefault(tp, PartitionProducer(max_in_flight=1))
        return partition.next_to_send() or partition.append(batch, batch.count)

    def _send_to(
        self, address: str, batches: Mapping[TopicPartition, SequencedBatch[_Batch]], producer: ProducerId
    ) -> dict[TopicPartition, _Settled]:
        for tp, batch in batches.items():
            if not batch.content.head:
                batch.content.stamp(producer, batch.sequence)
            self._partitions[tp].sent(batch)
        body = produce_request({tp: (one.content.head, one.content.compressed) for tp, one in batches.items()})
        codes = self._ask(address, PRODUCE, body, produce_answer)
        if codes is None:
            self._leaders = {tp: leader for tp, leader in self._leaders.items() if leader != address}
            for tp, batch in batches.items():
                self._partitions[tp].lost(batch)
            return {}
        found: dict[TopicPartition, _Settled] = {}
        for tp, batch in batches.items():
            settled = self._settle(tp, batch, codes.get(tp, ErrorCode.network_exception))
            if settled is not None:
                found[tp] = settled
        return found

    def _settle(self, tp: TopicPartition, batch: SequencedBatch[_Batch], code: ErrorCode) -> _Settled | None:
        step = self._partitions[tp].answered(batch, code)
        if step.acknowledged:
            self._unknown_since.pop(tp.stream, None)
            return _Settled()
        if step.outcome is Outcome.DEAD:
            self._producer = None
            return None
        if code in TOO_LARGE and batch.count > 1 and step.outcome is Outcome.REFUSED:
            self._partitions[tp].withdraw()
            return _Settled(batch.content.halves())
        if not code.retriable:
            raise PipelineError(f"the log refuses records for {tp.stream}/{tp.partition}: {code.name}")
        self._leaders.pop(tp, None)
        return None

    def _learn_leaders(self, batches: Mapping[TopicPartition, _Batch]) -> None:
        streams = sorted({tp.stream for tp in batches if tp not in self._leaders})
        if not streams:
            return
        told = self._ask_any(METADATA, metadata_request(streams), metadata_answer)
        if told is None:
            return
        for stream, places in told.streams.items():
            self._learn(stream, places, told.brokers)

    def _learn(self, stream: str, places: StreamMetadata, brokers: Mapping[int, str]) -> None:
        code = places.error
        for partition, place in places.partitions.items():
            if place.leader in brokers:
                self._leaders[TopicPartition(stream, partition)] = brokers[place.leader]
            else:
                code = place.error or code
        if code == ErrorCode.none:
            return
        if not code.retriable:
            raise PipelineError(f"the log refuses the stream {stream}: {code.name}")
        if code == ErrorCode.unknown_topic_or_partition:
            now = time.monotonic()
            if now - self._unknown_since.setdefault(stream, now) > _UNKNOWN_STREAM_MAX_S:
                raise PipelineError(f"the stream {stream} no longer exists")

    def _init_producer(self) -> bool:
        told = self._ask_any(INIT_PRODUCER_ID, producer_id_request(), producer_id_answer)
        if told is None:
            return False
        code, producer = told
        if code == ErrorCode.none:
            self._producer = producer
            return True
        if not code.retriable:
            raise PipelineError(f"the log gives no producer id: {code.name}")
        return False

    def _ask_any(self, api: Api, body: Sequence[Bytes], read: Callable[[Bytes], Answer]) -> Answer | None:
        for address in dict.fromkeys((*self._bootstrap, *self._leaders.values())):
            answer = self._ask(address, api, body, read)
            if answer is not None:
                return answer
        return None

    def _ask(self, address: str, api: Api, body: Sequence[Bytes], read: Callable[[Bytes], Answer]) -> Answer | None:
        """The answer; None if the broker is unknown or currently not reachable."""
        dialogue = self._dialogues.get(address)
        if dialogue is None:
            dialogue = self._dialogues[address] = Dialogue(address, _CLIENT)
        try:
            return read(dialogue.ask(api, body))
        except LinkError:
            return None
        except AnswerError:
            dialogue.hang_up()
            return None
