"""Listens to requests and replies of recorded services, and stores both.

Like the subscriptions of the ingress, those of the recorder follow the streams' settings and what this broker leads. A
pattern of replies is subscribed to once, however many streams have it, since it delivers every reply of the account.
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from logboom.base.errors import LogboomError, NotLeaderError, OverloadedError
from logboom.base.ids import StreamId
from logboom.base.limits import LimitUsage
from logboom.broker.catalog import Catalog
from logboom.broker.partition.publications import Published
from logboom.broker.partition.replica import Partition
from logboom.client.partitioner import partition_of
from logboom.metadata import ImageDelta, Stream, StreamConfig
from logboom.nats.config import NatsConfig
from logboom.nats.ingress.services import IngressServices
from logboom.nats.link.frames import Delivery
from logboom.nats.metrics import reason_of
from logboom.nats.recording.pending import PendingRequests
from logboom.nats.wire.recording import reply_content, request_content

CLIENT_ID: Final = "nats"
"""Whose quota of produced bytes records of services are charged to."""
_DEFAULTS: Final = StreamConfig()
_CHECK_S: Final = 1.0
"""How often requests whose time is over are looked for, while some are pending."""
_MESSAGE_BYTES: Final = 256
"""What a record takes beside its bytes."""
_US_NS: Final = 1_000
_S_NS: Final = 1_000_000_000


class _Recorded:
    """A stream that services are recorded in."""

    def __init__(self, stream: Stream, pending: PendingRequests) -> None:
        settings = stream.config_over(_DEFAULTS)
        self.stream = stream
        self.services = _patterns(settings.nats_services)
        self.replies = _patterns(settings.nats_replies)
        self.pending = pending
        self.subscribed: dict[str, int] = {}
        """Patterns of requests with the numbers of their subscriptions."""

    def partition_of(self, reply: bytes, subject: bytes) -> int:
        """Where a request and its replies go."""
        return partition_of(reply or subject, self.stream.partitions)


class ServiceRecorder:
    """See the module. Life: `start`, `stop`, once each, on one loop."""

    def __init__(self, services: IngressServices, catalog: Catalog, config: NatsConfig) -> None:
        self._services = services
        self._catalog = catalog
        self._limit_bytes = config.max_pending_request_bytes
        self._wait_ns = int(config.reply_wait_s * _S_NS)
        self._recorded: dict[StreamId, _Recorded] = {}
        self._replies: dict[str, int] = {}
        """Patterns of replies with the numbers of their subscriptions."""
        self._following = False
        self._collected: dict[tuple[StreamId, int], list[bytes]] = {}
        """By partition, what is published once this turn of the loop has ended."""
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Listen, and follow what changes from now on."""
        for stream in self._catalog.image.by_id.values():
            self._take(stream)
        self._catalog.watch(self._image_changed)
        self._services.leadership_changes.watch(self._look_at)

    def stop(self) -> None:
        """Listen to nothing any more. Idempotent."""
        self._stopped = True
        self._publish()
        if self._timer is not None:
            self._timer.cancel()
        for recorded in self._recorded.values():
            self._end(recorded)
        self._recorded.clear()
        self._follow_replies()

    def usage(self) -> LimitUsage:
        """The memory of pending requests: of the stream that has most."""
        used = max((each.pending.size_bytes for each in self._recorded.values()), default=0)
        return LimitUsage("nats.max_pending_request_bytes", self._limit_bytes, used)

    # --- following ----------------------------------------------------------------------------------------------

    def _image_changed(self, delta: ImageDelta) -> None:
        if self._stopped:
            return
        for stream in delta.deleted:
            self._forget(stream.id)
        for stream in {each.id: each for each in (*delta.reconfigured, *(new for new, _ in delta.grown))}.values():
            self._take(stream)
        for stream in delta.reassigned:
            self._look_at(stream.id)

    def _take(self, stream: Stream) -> None:
        """A stream is new, or has changed."""
        before = self._recorded.get(stream.id)
        if stream.internal or not stream.config_over(_DEFAULTS).nats_services:
            self._forget(stream.id)
            return
        pending = PendingRequests(self._limit_bytes, self._wait_ns) if before is None else before.pending
        recorded = self._recorded[stream.id] = _Recorded(stream, pending)
        if before is not None:
            recorded.subscribed = before.subscribed
        self._look_at(stream.id)

    def _forget(self, stream_id: StreamId) -> None:
        recorded = self._recorded.pop(stream_id, None)
        if recorded is not None:
            self._end(recorded)
            self._schedule()

    def _end(self, recorded: _Recorded) -> None:
        self._unsubscribe(recorded.subscribed, ())

    def _look_at(self, stream_id: StreamId) -> None:
        """What is led of a stream may be other than before."""
        if stream_id in self._recorded:
            self._schedule()

    def _schedule(self) -> None:
        """See to the subscriptions once this turn of the loop has ended."""
        if not self._following and not self._stopped:
            self._following = True
            asyncio.get_running_loop().call_soon(self._follow)

    def _follow(self) -> None:
        self._following = False
        # Replies first: what answers a request that is heard is not to be missed.
        self._follow_replies()
        link = self._services.link
        for stream_id, recorded in self._recorded.items():
            wanted = set(recorded.services) if self._leads_some(recorded.stream) else set()
            for pattern in sorted(wanted - recorded.subscribed.keys()):
                recorded.subscribed[pattern] = link.subscribe(
                    pattern, None, partial(self._requested, stream_id), partial(self._refused, pattern)
                )
            self._unsubscribe(recorded.subscribed, wanted)

    def _follow_replies(self) -> None:
        link = self._services.link
        leading = [each for each in self._recorded.values() if self._leads_some(each.stream)]
        wanted = {pattern for recorded in leading for pattern in recorded.replies}
        for pattern in sorted(wanted - self._replies.keys()):
            self._replies[pattern] = link.subscribe(
                pattern, None, partial(self._replied, pattern), partial(self._refused, pattern)
            )
        self._unsubscribe(self._replies, wanted)

    def _unsubscribe(self, subscribed: dict[str, int], wanted: Collection[str]) -> None:
        """End those that nobody wants any more."""
        ended = [subscribed.pop(pattern) for pattern in tuple(subscribed) if pattern not in wanted]
        if ended:
            self._services.link.unsubscribe(ended)

    def _leads_some(self, stream: Stream) -> bool:
        return any(self._led(stream, index) is not None for index in range(stream.partitions))

    def _led(self, stream: Stream, index: int) -> Partition | None:
        """A partition, if this broker leads it."""
        try:
            partition = self._services.replicas.find(stream.name, index)
        except LogboomError:
            return None
        return partition if partition.leads else None

    def _refused(self, pattern: str, why: str) -> None:
        self._services.log.warning(
            f"refused {pattern}", "NATS does not allow a subscription to a service", subject=pattern, why=why
        )

    # --- requests and replies -----------------------------------------------------------------------------------

    def _requested(self, stream_id: StreamId, messages: Sequence[Delivery]) -> None:
        recorded = self._recorded.get(stream_id)
        if recorded is None:
            return
        now_ns = self._services.clock.monotonic_ns()
        for message in messages:
            _, subject, reply, header, payload = message
            to = recorded.partition_of(reply, subject)
            if self._led(recorded.stream, to) is None:
                continue
            if reply:
                recorded.pending.add(reply, subject, now_ns)
            self._collect(recorded, to, request_content(subject, reply, header, payload))
            self._services.metrics.service_requests += 1
        self._watch_pending()

    def _replied(self, pattern: str, messages: Sequence[Delivery]) -> None:
        now_ns = self._services.clock.monotonic_ns()
        for recorded in self._recorded.values():
            if not recorded.pending or pattern not in recorded.replies:
                continue
            for message in messages:
                _, reply, _, header, payload = message
                asked = recorded.pending.find(reply, now_ns)
                if asked is not None:
                    took_us = (now_ns - asked.arrived_ns) // _US_NS
                    to = recorded.partition_of(reply, asked.subject)
                    self._collect(recorded, to, reply_content(asked.subject, reply, header, payload, took_us))
                    self._services.metrics.service_replies += 1

    def _collect(self, recorded: _Recorded, index: int, content: bytes) -> None:
        """Publish with all else of this turn of the loop: requests and replies take turns, and come one by one."""
        if not self._collected:
            asyncio.get_running_loop().call_soon(self._publish)
        self._collected.setdefault((recorded.stream.id, index), []).append(content)

    def _publish(self) -> None:
        services, collected = self._services, self._collected
        self._collected = {}
        for (stream_id, index), some in collected.items():
            recorded = self._recorded.get(stream_id)
            if recorded is None:
                continue  # it was deleted, or is not recorded any more
            name, partition = recorded.stream.name, self._led(recorded.stream, index)
            if partition is None:
                self._dropped(name, len(some), NotLeaderError(f"this broker does not lead {name}-{index}"))
                continue
            if not services.budget.allows():
                error = OverloadedError(
                    "more NATS messages wait to be stored than allowed", limit="nats.max_inflight_bytes"
                )
                services.log.limit_reached("nats.max_inflight_bytes", str(error), stream=name)
                self._dropped(name, len(some), error)
                continue
            size_bytes = sum(map(len, some)) + _MESSAGE_BYTES * len(some)
            services.budget.took(size_bytes)
            services.publishing.publish(
                partition, some, acks=-1, client_id=CLIENT_ID, done=partial(self._published, name, size_bytes)
            )

    def _published(self, name: str, size_bytes: int, published: Published) -> None:
        self._services.budget.gave(size_bytes)
        errors = [outcome for outcome in published.outcomes if isinstance(outcome, LogboomError)]
        self._services.metrics.stored += len(published.outcomes) - len(errors)
        for error in errors:
            self._dropped(name, 1, error)

    def _dropped(self, name: str, count: int, error: LogboomError) -> None:
        reason = reason_of(error)
        self._services.metrics.dropped[reason] += count
        self._services.log.warning(
            f"dropped {name} {reason}",
            "requests or replies of a service were not recorded",
            stream=name,
            messages=count,
            why=str(error),
        )
        self._services.advisories.note("nats.dropped", stream=name, reason=reason, count=count, message=str(error))

    # --- time ---------------------------------------------------------------------------------------------------

    def _watch_pending(self) -> None:
        if self._timer is None and not self._stopped and any(each.pending for each in self._recorded.values()):
            self._timer = asyncio.get_running_loop().call_later(_CHECK_S, self._check)

    def _check(self) -> None:
        self._timer = None
        now_ns, metrics = self._services.clock.monotonic_ns(), self._services.metrics
        for recorded in self._recorded.values():
            pending = recorded.pending
            pending.expire(now_ns)
            metrics.service_unanswered += pending.unanswered
            metrics.service_forgotten += pending.forgotten
            pending.unanswered = pending.forgotten = 0
        self._watch_pending()


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(one for one in text.split(",") if one)
