"""Leases of brokers on the controller: it answers heartbeats, and fences brokers whose leases have ended.

A lease is given only by a controller that led the group at some time after the heartbeat had come
(`confirm_leadership`): then any other controller begins later, and gives every broker a whole lease before it fences
one. So a broker's own view of its lease always ends first (`metadata.leases`).

A fenced broker gets none, and is unfenced only once it has applied the entry that took its leaderships away: a broker
whose disk hangs may still send heartbeats, while it applies no entry. Such a broker reports that its disk hangs, and is
fenced as if it were silent, since everything that it has a part in waits for its disk; unless no other broker could go
on with any of it. One that has stopped in order says so with its last heartbeat, and is fenced at once: nobody waits
for its lease to end, and new partitions are placed on it as on any other that is away.

A broker sends its next heartbeat before this one is answered, and they may be heard in another order than they were
sent in. Each renews the lease; what the broker says of itself is taken from the one that it sent last.

Life: that of the broker; `begin` and `end` with each controllership.
"""

import asyncio
from functools import partial
from typing import Final, NamedTuple, Protocol

from logboom.base.errors import BrokerRunsError, LogboomError, NotControllerError
from logboom.base.ids import BrokerEpoch, BrokerId
from logboom.broker.control.commands import Heartbeat, Lease
from logboom.broker.control.context import ControlContext, InOrder
from logboom.broker.control.wall_clocks import WallClocks
from logboom.metadata.brokers import Broker
from logboom.metadata.leases import CLOCK_RATE_MARGIN, BrokerLeases
from logboom.metadata.levels import Levels
from logboom.metadata.membership import (
    begin_shutdown,
    begin_shutdown_part,
    checked_epoch,
    fence,
    fence_part,
    unfence,
)

_RETRY_S: Final = 0.1
_PAUSED: Final = 0.5
"""A timer that is late by this share of a lease means that this process, or its machine, was paused: heartbeats that
came meanwhile are not read yet."""


class ConfirmLeadership(Protocol):
    """Returns once this broker has led the group at some time after the call; a little later if that is not urgent."""

    async def __call__(self, *, urgent: bool = True) -> object: ...


class _Heard(NamedTuple):
    """Evidence that a process is alive."""

    epoch: BrokerEpoch
    at_s: float
    by_heartbeat: bool
    """Else it was alive as far as the metadata knew when this controllership began."""


class Liveness:
    """See the module. On the loop."""

    def __init__(self, context: ControlContext, *, confirm_leadership: ConfirmLeadership, in_order: InOrder) -> None:
        self._context = context
        self._confirm_leadership = confirm_leadership
        self._in_order = in_order
        self._leases: BrokerLeases | None = None
        self._to_apply: dict[BrokerId, int] = {}
        """The entry that each fenced broker has to apply before it is unfenced."""
        self._latest: dict[BrokerId, Heartbeat] = {}
        """The latest heartbeat of each broker to this controller, by its number."""
        self._ending: set[BrokerId] = set()
        """Brokers that are being fenced, in one change of the metadata or in several. They get no lease."""
        self._heard: dict[BrokerId, _Heard] = {}
        """When the last heartbeat of each broker arrived; until one does, the start of this controllership."""
        self.levels: dict[BrokerId, Levels] = {}
        """The metadata levels that brokers support, as of their heartbeats to this controller."""
        self._wall_clocks = WallClocks()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._fencing: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """This broker is the controller now."""
        image, now_s, own = self._context.image, self._now_s(), self._context.identity.broker_id
        unfenced = [one for one in image.brokers.values() if not one.fenced]
        self._leases = BrokerLeases(self._context.config.now.lease_ms / 1_000)
        self._leases.begin([one.id for one in unfenced], now_s)
        self._to_apply.clear()
        self._latest.clear()
        self._ending.clear()
        # They may live, though none has asked this controller yet: nobody takes over from them before a lease is over.
        self._heard = {one.id: _Heard(one.epoch, now_s, by_heartbeat=False) for one in unfenced if one.id != own}
        self.levels.clear()
        self._wall_clocks = WallClocks()
        self._set_timer()

    def end(self) -> None:
        """This broker is no longer the controller. Idempotent."""
        self._leases = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self) -> None:
        """The broker stops."""
        self.end()
        if self._fencing is not None:
            self._fencing.cancel()
            await asyncio.gather(self._fencing, return_exceptions=True)

    async def heartbeat(self, command: Heartbeat) -> Lease:
        """Renew the lease of a broker. Raises NotControllerError; or UnknownBrokerError or StaleBrokerEpochError, upon
        which the broker stops, so these are raised only when they are certain."""
        broker, epoch = BrokerId(command.broker), BrokerEpoch(command.epoch)
        received_s = self._now_s()
        known = self._context.image.brokers.get(broker)
        changes = known is None or known.fenced or command.stopping or command.stalled
        await self._confirm_leadership(urgent=changes)
        found = checked_epoch(self._context.image, broker, epoch)
        is_news = self._note(broker, command, received_s)
        if broker in self._ending:
            return Lease(fenced=True, applied=self._context.writer.applied_index, may_stop=False, wall_ms=self.wall_ms)
        if self._leases is not None and is_news:
            self._leases.renew(broker, received_s)
            self._set_timer()
        if found.fenced and self._may_return(broker):
            await self._in_order(lambda: self._unfence(broker, epoch))
        if command.stalled and not found.fenced:
            await self._in_order(lambda: self._fence_stalled(broker))
        if command.ended and not found.fenced:
            await self._in_order(lambda: self._fence_ended(broker, epoch))
        elif command.stopping and not found.shutting_down:
            await self._in_order(lambda: self._begin_shutdown(broker, epoch))
        found = checked_epoch(self._context.image, broker, epoch)
        return Lease(
            fenced=found.fenced or broker in self._ending,
            applied=self._context.writer.applied_index,
            may_stop=command.stopping and not self._leads_what_others_can(broker),
            wall_ms=self.wall_ms,
        )

    @property
    def wall_ms(self) -> int:
        """What the wall clocks of most brokers show now; 0 if that is not known."""
        unfenced = sum(not one.fenced for one in self._context.image.brokers.values())
        return self._wall_clocks.median_ms(self._now_s(), unfenced)

    def is_alive(self, broker: BrokerId) -> bool:
        """Whether this controller has heard a heartbeat of the registered process within a lease, be it fenced or not;
        not of one that stops, or whose disk hangs."""
        heard, found = self._heard.get(broker), self._context.image.brokers.get(broker)
        lease_s = self._context.config.now.lease_ms / 1_000 * (1 + CLOCK_RATE_MARGIN)
        if heard is None or found is None or heard.epoch != found.epoch or not heard.by_heartbeat:
            return False
        latest = self._latest[broker]
        return self._now_s() - heard.at_s < lease_s and not (latest.stopping or latest.stalled)

    def check_has_ended(self, before: Broker) -> None:
        """Another process begins with the data directory of a registered one, which must have ended.

        If the registered one was heard from within a lease, it may have been killed since; or it is alive, and the
        directory of the new one is a copy. Raises BrokerRunsError: a process that asks again later learns which is the
        case. Raises NotControllerError if this controller has heard nothing yet, less than a lease after it began: so a
        process that was killed is not taken for a live one, however often the controller changes.
        """
        heard = self._heard.get(before.id)
        lease_s = self._context.config.now.lease_ms / 1_000 * (1 + CLOCK_RATE_MARGIN)
        if heard is None or heard.epoch != before.epoch or self._now_s() - heard.at_s >= lease_s:
            return
        if not heard.by_heartbeat:
            raise NotControllerError(
                f"the controller has just started, and does not know yet whether broker {before.id} is alive"
            )
        raise BrokerRunsError(
            f"another process of broker {before.id} is alive, and this data directory is a copy of its own. Stop "
            "one of the two; if both are wanted, give this one an id of its own and an empty data directory"
        )

    def _note(self, broker: BrokerId, command: Heartbeat, received_s: float) -> bool:
        """Whether this heartbeat proves that the process is alive. A later one that arrived earlier proves it already,
        and for longer; and a copy that a connection delivers late may arrive after the process has ended."""
        latest = self._latest.get(broker)
        if latest is not None and command.number and (latest.epoch, latest.number) >= (command.epoch, command.number):
            return False
        heard = _Heard(BrokerEpoch(command.epoch), received_s, by_heartbeat=True)
        self._heard[broker] = max(heard, self._heard.get(broker, heard), key=lambda one: (one.epoch, one.at_s))
        if latest is None or (latest.epoch, latest.number) <= (command.epoch, command.number):
            self._latest[broker] = command
            self._wall_clocks.heard(broker, command.wall_ms, received_s)
            self.levels[broker] = Levels(*command.levels)
        return True

    def _is_stalled(self, broker: BrokerId) -> bool:
        """Whether it reported last that its disk hangs."""
        latest = self._latest.get(broker)
        return latest is not None and latest.stalled

    async def _fence_stalled(self, broker: BrokerId) -> None:
        context = self._context
        found = context.image.brokers.get(broker)
        if self._is_stalled(broker) and found is not None and not found.fenced and self._others_can_go_on(broker):
            context.log.warning("broker fenced: it says that its disk hangs", broker=broker)
            await self._commit_end(broker)

    def _others_can_go_on(self, broker: BrokerId) -> bool:
        """Whether some partition that waits for the disk of a broker could go on without it."""
        image = self._context.image

        def can(one: BrokerId) -> bool:
            return one != broker and not self._is_stalled(one) and image.is_active(one)

        held = (one for stream in image for one in stream.assignments if broker in one.isr)
        return any(can(other) for one in held for other in (*one.isr, *one.elr))

    def _may_return(self, broker: BrokerId) -> bool:
        """Whether a fenced broker is well, and has applied everything up to its fencing: what was applied here when its
        first heartbeat since was heard."""
        to_apply = self._to_apply.setdefault(broker, self._context.writer.applied_index)
        latest = self._latest.get(broker)
        if latest is None or latest.stopping or latest.stalled:
            return False
        return latest.ready and latest.applied >= to_apply

    async def _unfence(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        found = self._context.image.brokers.get(broker)
        if found is None or not found.fenced or not self._may_return(broker):
            return  # another change came first, or it has said something else since
        context = self._context
        self._to_apply.pop(broker, None)
        records = unfence(context.image, broker, epoch, context.minimum_of)
        await context.commit(records)
        if records:
            context.log.info("broker unfenced", broker=broker)

    async def _begin_shutdown(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        context = self._context
        while part := begin_shutdown_part(context.image, broker, epoch, context.minimum_of):
            await context.commit(part)
        await context.commit(begin_shutdown(context.image, broker, epoch, context.minimum_of))

    async def _fence_ended(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        context = self._context
        if not checked_epoch(context.image, broker, epoch).fenced:
            context.log.info("broker fenced: it has stopped", broker=broker)
            await self._commit_end(broker)
        if self._leases is not None:
            self._leases.drop(broker)

    def _leads_what_others_can(self, broker: BrokerId) -> bool:
        image = self._context.image

        def others_can(isr: tuple[BrokerId, ...]) -> bool:
            return any(one != broker and image.is_active(one) for one in isr)

        return any(one.leader == broker and others_can(one.isr) for stream in image for one in stream.assignments)

    # --- leases that are over ------------------------------------------------------------------------------------

    def _set_timer(self, least_s: float = 0.0) -> None:
        """One timer, for the lease that ends first. It may find that this one was renewed meanwhile."""
        if self._leases is None or self._timer is not None:
            return
        end_s = self._leases.next_end_s
        if end_s is not None:
            delay_s = max(end_s - self._now_s(), least_s)
            self._due_s = self._now_s() + delay_s
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        leases = self._leases
        if leases is None:
            return
        late_s = self._now_s() - self._due_s
        if late_s > _PAUSED * self._context.config.now.lease_ms / 1_000:
            self._context.log.warning(
                "this controller was paused, so every broker gets a whole lease before it may be fenced",
                seconds=round(late_s, 3),
            )
            leases.renew_all(self._now_s())
        expired = leases.expired(self._now_s())
        if self._fencing is not None and not self._fencing.done():
            return  # it looks again when it is done
        if expired:
            self._fencing = asyncio.ensure_future(self._fence(leases, expired))
        else:
            self._set_timer()

    async def _fence(self, leases: BrokerLeases, expired: tuple[BrokerId, ...]) -> None:
        """Fence brokers, except those whose heartbeat arrives before."""
        try:
            for broker in expired:
                await self._in_order(partial(self._fence_one, leases, broker))
        except LogboomError as error:
            self._context.log.warning("a broker without a lease is not fenced yet", reason=str(error))
        self._set_timer(_RETRY_S)

    async def _fence_one(self, leases: BrokerLeases, broker: BrokerId) -> None:
        context = self._context
        if leases is not self._leases or broker not in leases.expired(self._now_s()):
            return
        if broker == context.identity.broker_id and self._is_alone():
            leases.renew(broker, self._now_s())
            return
        found = context.image.brokers.get(broker)
        if found is not None and not found.fenced:
            context.log.warning("broker fenced: its lease is over", broker=broker)
            await self._commit_end(broker)
        self._ending.discard(broker)
        leases.drop(broker)

    async def _commit_end(self, broker: BrokerId) -> None:
        context = self._context
        # From here on it has no lease, also where a commit fails whose records may come through later.
        self._ending.add(broker)
        while part := fence_part(context.image, broker, context.minimum_of):
            await context.commit(part)
        await context.commit(fence(context.image, broker, context.minimum_of))
        self._ending.discard(broker)

    def _is_alone(self) -> bool:
        """Whether nobody else could lead anything: a single node that was paused continues as before."""
        return all(one.id == self._context.identity.broker_id for one in self._context.image.brokers.values())

    def _now_s(self) -> float:
        return self._context.clock.monotonic_s()
