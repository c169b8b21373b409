"""What the publishers of one stream are told: acks, refusals, or nothing if the fate of a message is not known.

A message without a reply subject is counted instead, by reason. What was not stored is recorded as an advisory.
"""

from collections.abc import Sequence
from typing import Final

from logboom.base.errors import LogboomError, NotLeaderError
from logboom.base.ids import Offset
from logboom.broker.partition.publications import TERM_ERRORS
from logboom.nats.ingress.holding import Unstored
from logboom.nats.ingress.inflight import InflightRun
from logboom.nats.ingress.services import IngressServices
from logboom.nats.link import commands
from logboom.nats.metrics import reason_of
from logboom.nats.wire.acks import ack, answerable, error_ack
from logboom.nats.wire.envelope import Sealed
from logboom.nats.wire.errors import WrongStreamError

_MS_NS: Final = 1_000_000
_REFUSED_BY_TERMS: Final = (*TERM_ERRORS, WrongStreamError)
"""What a publisher asked to be refused with: nothing that others need to know of."""


class PublisherReplies:
    """See the module. Life: that of the stream's intake; on the loop."""

    def __init__(self, name: str, services: IngressServices) -> None:
        """`name`: of the stream."""
        self._name = name
        self._services = services

    def now_ns(self) -> int:
        """Nanoseconds since 1970, as envelopes count them."""
        return self._services.clock.wall_ms() * _MS_NS

    def ack(self, run: InflightRun, place: int, offset: Offset, duplicate: bool) -> bytes:
        """The answer to a message that is stored, for `send`."""
        sealed = run.sealed.get(place) if run.sealed else None
        body = ack(self._name, offset, duplicate) if sealed is None else sealed.ack(self._name, offset, self.now_ns())
        return commands.publish(run.replies[place], body)

    def refuse_some(self, run: InflightRun, places: Sequence[int], error: LogboomError) -> None:
        """Refuse messages of a run for one reason, together: a flood of what cannot be taken must cost less than what
        can."""
        if not run.sealed:
            self.refuse([run.replies[place] for place in places], error)
            return
        self.refuse([run.replies[place] for place in places if place not in run.sealed], error)
        for place in places:
            if place in run.sealed:
                self.refuse([run.replies[place]], error, run.sealed[place])

    def refuse(self, replies: Sequence[bytes], error: LogboomError, sealed: Sealed | None = None) -> None:
        """Refuse messages by their reply subjects, empty where there is none; `sealed`: the one came in an envelope."""
        metrics, reason = self._services.metrics, reason_of(error)
        body = error_ack(self._name, error) if sealed is None else sealed.ack(self._name, error, self.now_ns())
        answers = [commands.publish(reply, body) for reply in map(answerable, replies) if reply]
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
            self._note("nats.dropped", reason, dropped, error)
        if answers and not isinstance(error, _REFUSED_BY_TERMS):
            self._note("nats.refused", reason, len(answers), error)
        self.send(b"".join(answers), len(answers))

    def _note(self, kind: str, reason: str, count: int, error: LogboomError) -> None:
        self._services.advisories.note(kind, stream=self._name, reason=reason, count=count, message=str(error))

    def give_up(self, some: Sequence[Unstored]) -> None:
        """Of these it is not known whether the next leader has them. An error would be taken for a sign that it does
        not; without an answer publishers try again."""
        unanswered = sum(1 for one in some if one.message.reply)
        self._services.metrics.unanswered += unanswered
        if unanswered:
            self._services.advisories.note("nats.unanswered", stream=self._name, count=unanswered)
        if len(some) > unanswered:
            error = NotLeaderError(f"another broker leads the partition of {self._name}, and did not ask for these")
            self.refuse([b""] * (len(some) - unanswered), error)

    def send(self, answers: bytes, count: int) -> None:
        """Send so many answers in one write."""
        if count:
            if self._services.link.send(answers):
                self._services.metrics.acks += count
            else:
                self._services.metrics.lost_acks += count
