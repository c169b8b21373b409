"""A producer of whole batches: it encodes a block of lines as one record batch and sends it itself.

It promises what librdkafka's idempotent, gapless producer does, for much less work per line: records are acknowledged
in order, each once, or the client reports a fatal error and a new one takes over. It speaks plaintext connections only;
`record_client` is used where the options ask for TLS, SASL or anything else.

One thread calls all of this. Nothing waits but `poll`, and the making of a connection.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from selectors import DefaultSelector
from typing import Any, Final

from confluent_kafka import KafkaError

from logboom.base.ports import Bytes
from logboom.client import messages
from logboom.client.codes import MOVED, ErrorCode
from logboom.client.link import Answer, BrokerConnection, LinkError, addresses_of
from logboom.client.messages import AnswerError, Api, ProducerId, StreamMetadata, TopicPartition
from logboom.client.partitioner import partition_of
from logboom.client.producer import Outcome
from logboom.collector.partition_queue import ZSTD_LEVEL, Batch, PartitionQueue, RecordRange
from logboom.collector.pending_send import PendingSend
from logboom.records import Codec

_REFRESH_S: Final = 300.0
_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 1.0
_UNKNOWN_FOR_S: Final = 5.0
"""A stream that has been missing for this long is not about to be created."""

_TRANSPORT: Final = KafkaError._TRANSPORT  # noqa: SLF001
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001
_PURGED: Final = KafkaError._PURGE_INFLIGHT  # noqa: SLF001

CODECS: Final = {codec.name.lower(): codec for codec in Codec}
OPTIONS: Final = frozenset({"client.id", "compression.type", "compression.codec", "compression.level", "linger.ms"})
"""Options of librdkafka that this client knows, or has no need of."""


@dataclass(slots=True, eq=False)
class _Stream:
    """The partitions of a stream, once the broker has named them."""

    name: str
    queues: dict[int, PartitionQueue] = field(default_factory=dict)
    waiting: list[RecordRange] = field(default_factory=list)
    """A stream of which nothing is known yet."""
    asked_for_since_s: float = 0.0


class BatchClient:
    """See the module. Life: made, `produce` and `poll` again and again, `purge` where it is given up, `close`."""

    def __init__(self, options: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> None:
        self._bootstrap = addresses_of(str(options["bootstrap.servers"]))
        self._client_id = str(options.get("client.id", "logboom-collector"))
        name = str(options.get("compression.codec", options.get("compression.type", "zstd")))
        self._codec = CODECS[name]
        level = int(options.get("compression.level", -1))
        self._level = level if level >= 0 else ZSTD_LEVEL
        self._on_error = on_error
        self._selector = DefaultSelector()
        self._links: dict[str, BrokerConnection] = {}
        self._not_before_s: dict[str, float] = {}
        self._addresses: Mapping[int, str] = {}
        self._streams: dict[str, _Stream] = {}
        self._producer: ProducerId | None = None
        self._asking_for_id = False
        self._asking_for_places = False
        self._ask_again_s = 0.0
        self._places_due = False
        self._refresh_s = 0.0
        self._dead = False

    # --- what the delivery asks ---

    def produce(self, pending_send: PendingSend, count: int) -> None:
        """Send `count` records, from the first unacknowledged one on; the pending send hears of them."""
        count = min(count, pending_send.count - pending_send.acked)
        pending_send.pending = count
        name = pending_send.source.stream
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = _Stream(name)
        record_range = RecordRange(pending_send, pending_send.acked, count)
        if stream.queues:
            self._queue_of(stream, pending_send).waiting.append(record_range)
        else:
            stream.waiting.append(record_range)
            self._places_due = True

    def is_stuck(self, stream: str) -> bool:
        """Whether a stream's records are sent again and again, or have nowhere to go yet."""
        known = self._streams.get(stream)
        return known is not None and (
            bool(known.waiting) or any(queue.pause_s > 0 and not queue.is_empty for queue in known.queues.values())
        )

    def poll(self, timeout_s: float) -> None:
        """Send what is due and take what came, waiting up to `timeout_s` for it."""
        now_s = time.monotonic()
        self._ask(now_s)
        self._send(now_s)
        if not self._selector.get_map():
            time.sleep(min(timeout_s, _RETRY_S))
            return
        for key, events in self._selector.select(timeout_s):
            link: BrokerConnection = key.data
            try:
                link.serve(events)
            except (LinkError, AnswerError) as error:
                self._drop(link, error)
        now_s = time.monotonic()
        for link in [link for link in self._links.values() if link.is_overdue(now_s)]:
            self._drop(link, LinkError(f"{link.address}: no answer"))
        self._send(now_s)

    def flush(self, timeout_s: float) -> None:
        """Wait for answers, no longer than this."""
        until_s = time.monotonic() + timeout_s
        self.poll(0.0)
        while not self._is_empty() and not self._dead and (left_s := until_s - time.monotonic()) > 0:
            self.poll(min(left_s, 0.05))

    def purge(self) -> None:
        """Give up everything that is not acknowledged; nothing is sent any more."""
        self._dead = True
        why = KafkaError(_PURGED)
        for stream in self._streams.values():
            for queue in stream.queues.values():
                queue.purge(why)
            self._fail_waiting(stream, why)

    def close(self) -> None:
        """Give the connections back."""
        self._dead = True
        for link in list(self._links.values()):
            link.close()
        self._links.clear()
        self._selector.close()

    def _is_empty(self) -> bool:
        return all(
            not stream.waiting and all(queue.is_empty for queue in stream.queues.values())
            for stream in self._streams.values()
        )

    # --- sending ---

    def _queue_of(self, stream: _Stream, pending_send: PendingSend) -> PartitionQueue:
        source = pending_send.source
        if source.partitions != len(stream.queues):
            source.partitions = len(stream.queues)
            source.partition = partition_of(source.key, source.partitions)
        return stream.queues[source.partition]

    def _send(self, now_s: float) -> None:
        if self._producer is None or self._dead:
            return
        for stream in self._streams.values():
            for queue in stream.queues.values():
                if (queue.waiting or queue.producer.batches) and now_s >= queue.pause_until_s:
                    self._send_of(queue, now_s)

    def _send_of(self, queue: PartitionQueue, now_s: float) -> None:
        assert self._producer is not None
        link = self._link_to(queue, now_s)
        while link is not None and not link.closed:
            batch = queue.next_batch(self._codec, self._producer, self._level)
            if batch is None:
                return
            body = messages.produce_request({TopicPartition(queue.stream, queue.index): (batch.content.encoded,)})
            self._request(link, messages.PRODUCE, body, now_s, partial(self._produced, queue, batch))

    def _link_to(self, queue: PartitionQueue, now_s: float) -> BrokerConnection | None:
        address = self._addresses.get(queue.leader)
        if address is None:
            self._places_due = True
            return None
        return self._link(address, now_s)

    def _link(self, address: str, now_s: float) -> BrokerConnection | None:
        """A connection, made if there is none, unless that failed a moment ago."""
        link = self._links.get(address)
        if link is None and now_s >= self._not_before_s.get(address, 0.0):
            try:
                link = self._links[address] = BrokerConnection(address, self._client_id, self._selector)
            except LinkError as error:
                self._not_before_s[address] = time.monotonic() + _RETRY_MAX_S
                self._places_due = True
                self._say(error)
        return link

    def _request(self, link: BrokerConnection, api: Api, body: list[Bytes], now_s: float, answer: Answer) -> None:
        try:
            link.request(api, body, now_s, answer)
        except LinkError as error:
            self._drop(link, error)

    def _drop(self, link: BrokerConnection, error: LinkError | AnswerError) -> None:
        if self._links.get(link.address) is link:
            del self._links[link.address]
            self._not_before_s[link.address] = time.monotonic() + _RETRY_S
        self._places_due = True
        link.close()
        self._say(error)

    def _say(self, error: Exception) -> None:
        self._on_error(KafkaError(_TRANSPORT, str(error)))

    # --- answers to Produce ---

    def _produced(self, queue: PartitionQueue, batch: Batch, body: memoryview | None) -> None:
        if self._dead:
            return
        if body is None:
            outcome, code = queue.lost(batch), ErrorCode.none
        else:
            code = _code_of(messages.produce_answer(body), TopicPartition(queue.stream, queue.index))
            outcome = queue.answered(batch, code)
        if code in MOVED:
            self._places_due = True
        if outcome is Outcome.DEAD:
            self._dead = True
            self._on_error(KafkaError(_FATAL, f"the broker no longer knows this producer ({code.name})"))
        elif outcome is Outcome.AGAIN:
            queue.pause_s = min(_RETRY_MAX_S, 2 * queue.pause_s or _RETRY_S)
            queue.pause_until_s = time.monotonic() + queue.pause_s
            if code:
                self._on_error(KafkaError(code))

    # --- who and where ---

    def _ask(self, now_s: float) -> None:
        """Ask for a producer id and for the leaders of streams, if they are unknown or no longer certain."""
        if self._dead or now_s < self._ask_again_s or not self._streams:
            return
        places_due = (self._places_due or now_s >= self._refresh_s) and not self._asking_for_places
        if not places_due and (self._producer is not None or self._asking_for_id):
            return
        self._ask_again_s = now_s + _RETRY_S
        link = self._any_link(now_s)
        if link is None:
            return
        if self._producer is None and not self._asking_for_id:
            self._asking_for_id = True
            body = messages.producer_id_request()
            self._request(link, messages.INIT_PRODUCER_ID, body, now_s, self._take_id)
        if places_due and not link.closed:
            self._places_due, self._asking_for_places = False, True
            body = messages.metadata_request(self._streams)
            self._request(link, messages.METADATA, body, now_s, self._take_places)

    def _any_link(self, now_s: float) -> BrokerConnection | None:
        if self._links:
            return next(iter(self._links.values()))
        for address in dict.fromkeys((*self._addresses.values(), *self._bootstrap)):
            if (link := self._link(address, now_s)) is not None:
                return link
        return None

    def _take_id(self, body: memoryview | None) -> None:
        self._asking_for_id = False
        if body is None:
            return
        code, producer = messages.producer_id_answer(body)
        if code:
            self._on_error(KafkaError(code))
        else:
            self._producer = producer

    def _take_places(self, body: memoryview | None) -> None:
        self._asking_for_places = False
        if body is None:
            self._places_due = True
            return
        places = messages.metadata_answer(body)
        self._refresh_s = time.monotonic() + _REFRESH_S
        self._addresses = places.brokers or self._addresses
        for name, place in places.streams.items():
            if name in self._streams:
                self._take_place(self._streams[name], place)

    def _take_place(self, stream: _Stream, place: StreamMetadata) -> None:
        leaders = {index: one.leader for index, one in place.partitions.items()}
        for index, leader in leaders.items():
            queue = stream.queues.get(index)
            if queue is not None:
                queue.leader = leader
        if any(leader < 0 for leader in leaders.values()):
            self._places_due = True
        if not place.error and len(leaders) > len(stream.queues):
            self._grow(stream, leaders)
        elif place.error and not stream.queues:
            self._not_there(stream, place.error)

    def _grow(self, stream: _Stream, leaders: Mapping[int, int]) -> None:
        """The partitions are known, or there are more. Records keep their order in those they were sent to."""
        if leaders.keys() != set(range(len(leaders))):
            raise AnswerError(f"a broker's answer lacks partitions of {stream.name}")
        if stream.queues and not all(queue.is_empty for queue in stream.queues.values()):
            return  # a source may move once nothing is on its way: at another look
        for index, leader in leaders.items():
            if index not in stream.queues:
                stream.queues[index] = PartitionQueue(stream.name, index, leader)
        stream.asked_for_since_s = 0.0
        waiting, stream.waiting = stream.waiting, []
        for record_range in waiting:
            self._queue_of(stream, record_range.pending_send).waiting.append(record_range)

    def _not_there(self, stream: _Stream, code: ErrorCode) -> None:
        now_s = time.monotonic()
        stream.asked_for_since_s = stream.asked_for_since_s or now_s
        if code in MOVED and now_s - stream.asked_for_since_s < _UNKNOWN_FOR_S:
            self._places_due = True
            return
        stream.asked_for_since_s = 0.0
        self._fail_waiting(stream, KafkaError(code))

    def _fail_waiting(self, stream: _Stream, why: KafkaError) -> None:
        waiting, stream.waiting = stream.waiting, []
        for record_range in waiting:
            record_range.pending_send.report_many(why, record_range.count)


def _code_of(codes: Mapping[TopicPartition, ErrorCode], tp: TopicPartition) -> ErrorCode:
    if codes.keys() != {tp}:
        raise AnswerError("a broker answered for other partitions than the requested one")
    return codes[tp]


def can_serve(options: Mapping[str, Any]) -> bool:
    """Whether this client supports the librdkafka options that the user sets."""
    codec = options.get("compression.codec", options.get("compression.type", "zstd"))
    return options.keys() <= OPTIONS and codec in CODECS
