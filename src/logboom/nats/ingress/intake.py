"""The messages of one stream: each becomes a record of a partition, and its outcome an answer to its publisher.

All messages of one read that go to one partition are published in one call, in their order; what commits together is
answered in one write. A message that cannot be taken is refused on its reply subject; where it has none, it is counted
as dropped, by reason.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from logboom.base.errors import LogboomError, OverloadedError
from logboom.broker.partition.publications import Published, Terms
from logboom.broker.partition.replica import Partition
from logboom.nats.ingress.services import IngressServices
from logboom.nats.link import commands
from logboom.nats.link.frames import Delivery
from logboom.nats.wire.acks import ack, error_ack
from logboom.nats.wire.envelope import Sealed
from logboom.nats.wire.messages import Message, Reader

CLIENT_ID: Final = "nats"
"""Whose quota of produced bytes messages from NATS are charged to."""
_MS_NS: Final = 1_000_000
_MESSAGE_BYTES: Final = 256
"""What a message takes beside its bytes."""


class _Run:
    """Messages on their way into one partition together."""

    __slots__ = ("acks", "contents", "replies", "sealed", "size_bytes", "terms")

    def __init__(self, acks: int) -> None:
        self.acks = acks
        self.contents: list[bytes] = []
        self.terms: dict[int, Terms] = {}
        self.replies: list[bytes] = []
        self.sealed: dict[int, Sealed] = {}
        """Those that came in envelopes, by their places: they are answered in another way."""
        self.size_bytes = 0

    def add(self, read: Message, sealed: Sealed | None) -> None:
        """One message more."""
        place = len(self.contents)
        if read.terms is not None:
            self.terms[place] = read.terms
        if sealed is not None:
            self.sealed[place] = sealed
        self.contents.append(read.content)
        self.replies.append(read.reply)
        self.size_bytes += len(read.content) + _MESSAGE_BYTES


class _Partitions(dict[int, Partition]):
    """The partitions of this broker that messages of one read go to, as far as they were looked for."""

    def __init__(self, find: Callable[[int], Partition | None]) -> None:
        super().__init__()
        self._find = find
        self._others: set[int] = set()

    def takes(self, index: int) -> bool:
        """Whether a partition's messages are this broker's matter."""
        if index in self:
            return True
        if index in self._others:
            return False
        found = self._find(index)
        if found is None:
            self._others.add(index)
            return False
        self[index] = found
        return True


class Intake:
    """See the module. Life: that of an attachment; on the loop."""

    def __init__(self, name: str, reader: Reader, services: IngressServices) -> None:
        """`name`: of the stream."""
        self._name = name
        self._reader = reader
        self._services = services

    def receive(self, index: int | None, messages: Sequence[Delivery]) -> None:
        """Take messages for one partition; None: for those that the partitioner chooses."""
        self._count(messages)
        partitions = _Partitions(partial(self._led, is_named=index is not None))
        runs: dict[int, _Run] = {}
        elsewhere = 0
        for message in messages:
            subject, reply = message.subject, message.reply
            try:
                read = self._reader.read(
                    subject, reply, message.header, message.payload, partition=index, takes=partitions.takes
                )
            except LogboomError as error:
                self._refuse([reply], error)
                continue
            if read is None:
                elsewhere += 1
                continue
            to = read.partition
            run = runs.get(to)
            if run is None or run.acks != read.acks:
                if run is not None:
                    self._publish(partitions[to], run)
                run = runs[to] = _Run(read.acks)
            run.add(read, None if read.envelope is None else Sealed(read.envelope, subject, self._now_ns()))
        self._services.metrics.elsewhere += elsewhere
        for to, run in runs.items():
            self._publish(partitions[to], run)

    def _now_ns(self) -> int:
        return self._services.clock.wall_ms() * _MS_NS

    def _count(self, messages: Sequence[Delivery]) -> None:
        metrics = self._services.metrics
        metrics.received += len(messages)
        metrics.received_bytes += sum(len(message.payload) + len(message.header) for message in messages)

    def _led(self, index: int, *, is_named: bool) -> Partition | None:
        """The partition, if its messages are this broker's matter: because it leads it, or had asked for them."""
        try:
            partition = self._services.replicas.find(self._name, index)
        except LogboomError:
            return None
        return partition if partition.leads or is_named else None

    def _publish(self, partition: Partition, run: _Run) -> None:
        services = self._services
        if not services.budget.allows():
            error = OverloadedError("more has arrived from NATS than may wait", limit="nats.max_inflight_bytes")
            services.log.limit_reached("nats.max_inflight_bytes", str(error), stream=self._name)
            for place, reply in enumerate(run.replies):
                self._refuse([reply], error, run.sealed.get(place))
            return
        services.budget.took(run.size_bytes)
        services.publishing.publish(
            partition,
            run.contents,
            run.terms,
            acks=run.acks,
            client_id=CLIENT_ID,
            done=lambda published: self._published(run, published),
        )

    def _published(self, run: _Run, published: Published) -> None:
        metrics = self._services.metrics
        self._services.budget.gave(run.size_bytes)
        answers: list[bytes] = []
        refused: list[tuple[bytes, LogboomError, Sealed | None]] = []
        for place, (reply, outcome) in enumerate(zip(run.replies, published.outcomes, strict=True)):
            if isinstance(outcome, LogboomError):
                refused.append((reply, outcome, run.sealed.get(place)))
            elif reply:
                sealed = run.sealed.get(place) if run.sealed else None
                if sealed is None:
                    told = ack(self._name, outcome, place in published.duplicates)
                else:
                    told = sealed.ack(self._name, outcome, self._now_ns())
                answers.append(commands.publish(reply, told))
        metrics.duplicates += len(published.duplicates)
        metrics.stored += len(run.replies) - len(refused) - len(published.duplicates)
        self._answer(answers)
        for reply, error, sealed in refused:
            self._refuse([reply], error, sealed)

    def _refuse(self, replies: Sequence[bytes], error: LogboomError, sealed: Sealed | None = None) -> None:
        metrics, reason = self._services.metrics, _reason(error)
        told = error_ack(self._name, error) if sealed is None else sealed.ack(self._name, error, self._now_ns())
        answers = [commands.publish(reply, told) for reply in replies if reply]
        metrics.refused[reason] += len(answers)
        dropped = len(replies) - len(answers)
        if dropped:
            metrics.dropped[reason] += dropped
            self._services.log.warning(
                f"dropped {self._name} {reason}",
                "messages from NATS were dropped",
                stream=self._name,
                messages=dropped,
                why=str(error),
            )
        self._answer(answers)

    def _answer(self, answers: Sequence[bytes]) -> None:
        if answers:
            if self._services.link.send(b"".join(answers)):
                self._services.metrics.acks += len(answers)
            else:
                self._services.metrics.lost_acks += len(answers)


def _reason(error: LogboomError) -> str:
    """An error's kind as a word of metrics: `not_leader`."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
