"""This broker's place in the cluster: it registers with each start of its process, sends heartbeats, and knows until
when its lease holds.

The lease counts from the moment at which an answered heartbeat was sent, so it ends before the controller may give this
broker's partitions to others (`metadata.leases`). A fenced broker has none: others lead what it led. The only voter of
its group needs no lease: nobody else can decide anything.

A heartbeat waits for no answer to those before it: over slow links an answer takes most of a lease. So answers may come
out of order, and what the controller decided last is in the answer to the heartbeat that was sent last.

Life: `register` once the controller can be reached, `start` once the metadata is applied; `ready` when the logs are
recovered; `leave` before the front ends close; `end_lease` once nothing is taken and nothing is waited for any more;
`stop`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError, NotControllerError, StaleBrokerEpochError, UnknownBrokerError
from logboom.base.ids import BrokerEpoch
from logboom.broker.config import BrokerConfig
from logboom.broker.control import commands
from logboom.broker.control.channel import ControlChannel
from logboom.broker.disk.data_dir import Identity
from logboom.broker.peers import PeerUnavailableError
from logboom.broker.runtime import Runtime
from logboom.metadata.leases import BrokerLease
from logboom.metadata.levels import OWN_LEVELS

_NO_EPOCH: Final = BrokerEpoch(-1)
_IN_FLIGHT_MAX: Final = 8
"""Heartbeats in flight. Each is given up after a lease, so with the default settings there are four."""
_UNANSWERED_S: Final = 5.0
"""After this long without an answer from the controller, another broker is asked to forward a heartbeat. A broker that
was removed while it was cut off no longer hears of any controller, and would otherwise never learn why."""
_LAST_WORD_S: Final = 1.0
"""How long a broker that stops tries to reach the controller: about as long as its lease would last."""
_ASK_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class BrokerHooks:
    """How registration notifies the rest of the broker."""

    lease_changed: Callable[[bool], None]
    """Whether this broker may act as a leader from now on."""
    expelled: Callable[[LogboomError], None]
    """The cluster does not know this process any more: it was removed, or another one runs under its id."""
    disk_hangs: Callable[[], bool]
    """Asked with each heartbeat."""


def _explained(error: LogboomError) -> LogboomError:
    """The error with advice on what to do."""
    if isinstance(error, UnknownBrokerError):
        return UnknownBrokerError(
            f"{error}: it was removed from the cluster. It joins again, with --join and an empty data directory"
        )
    return StaleBrokerEpochError(
        f"another process has started as this broker, with a copy of its data directory: {error}. Stop one of the two; "
        "if both are wanted, give the other one an id of its own and an empty data directory"
    )


class Registration:
    """See the module. On the loop."""

    def __init__(
        self,
        identity: Identity,
        config: Current[BrokerConfig],
        channel: ControlChannel,
        *,
        runtime: Runtime,
        log: FilteringBoundLogger,
        is_sole_voter: Callable[[], bool],
        applied: Callable[[], int],
        ask_another: Callable[[commands.AnyCommand], Awaitable[None]],
        hooks: BrokerHooks,
    ) -> None:
        """`applied`: the last metadata entry that this broker has applied. `ask_another` has another broker forward a
        command to the controller, and raises what the command raises."""
        self._identity = identity
        self._config = config
        self._channel = channel
        self._clock = runtime.clock
        self._settled_clock = runtime.settled_clock
        self._log = log
        self._is_sole_voter = is_sole_voter
        self._applied = applied
        self._ask_another = ask_another
        self._to_apply = 0
        self._awaited, self._awaited_since_s = 0, 0.0
        self._hooks = hooks
        self.incarnation = str(runtime.ids.uuid())
        """A random value of this process."""
        self.epoch = _NO_EPOCH
        """The epoch of this registration; -1 before there is one."""
        self.fenced = True
        self._ready = self._stopping = self._ended = self._stalled = False
        self._held = False
        self._lease = BrokerLease(config.now.lease_ms / 1_000)
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._in_flight: set[asyncio.Task[None]] = set()
        self._silent = False
        """Whether nothing more is sent and answers are ignored."""
        self._sent = self._last_answered = self._last_stalled = 0
        """Numbers of heartbeats: the last one sent, the last one answered, and the last one that reported a hanging
        disk."""
        self._answered_s = 0.0
        """When the last answered heartbeat was sent, or another broker was asked last."""
        self._changed = asyncio.Condition()
        self._may_stop = False
        self._wake = asyncio.Event()

    @property
    def to_apply(self) -> int:
        """The last metadata entry that the controller had applied when it answered last."""
        return self._to_apply

    @property
    def own_epoch(self) -> BrokerEpoch | None:
        """The epoch of this registration; None before there is one."""
        return None if self.epoch == _NO_EPOCH else self.epoch

    def command(
        self,
        listeners: Mapping[str, tuple[str, int]],
        software: str,
        clean_epoch: BrokerEpoch | None,
        *,
        returning: bool,
        earlier: tuple[str, ...],
    ) -> commands.RegisterBroker:
        """The command that registers this process. `returning`: whether it was registered before with this directory.
        `earlier`: processes that have asked with this directory before."""
        config = self._config.now
        return commands.RegisterBroker(
            id=self._identity.broker_id,
            directory_id=self._identity.directory_id,
            incarnation=self.incarnation,
            listeners=dict(listeners),
            rack=config.rack,
            failure_domain=config.failure_domain or "",
            software=software,
            clean_epoch=clean_epoch,
            observer=config.observer,
            levels=OWN_LEVELS,
            returning=returning,
            earlier=earlier,
        )

    def registered(self, answer: commands.Registered) -> None:
        """The controller has registered this process."""
        self.epoch = BrokerEpoch(answer.epoch)
        self._settled_clock.others_show(answer.wall_ms)

    def start(self) -> None:
        """Begin to send heartbeats."""
        self._beating = asyncio.ensure_future(self._beat())

    async def ready(self) -> None:
        """This broker has recovered: return when it is unfenced, or never will be."""
        self._ready = True
        self._wake.set()
        async with self._changed:
            await self._changed.wait_for(lambda: not self.fenced or self._ended)

    async def end(self) -> None:
        """This broker has stopped applying metadata. Calls that wait here return, and the lease runs out, so that other
        brokers take over its partitions."""
        self._send_no_more()
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def leave(self, timeout_s: float) -> bool:
        """Hand all leaderships to other brokers (controlled shutdown); returns once no partition is led here that
        another broker can lead, or False after `timeout_s` seconds."""
        self._stopping = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._may_stop or self._ended)
        except TimeoutError:
            return False
        return True

    async def end_lease(self) -> None:
        """This broker no longer acts under its lease and reports that to the controller, which then need not wait for
        the lease to end (Kafka's SHUTDOWN_NOW). Does nothing if the controller did not let it leave."""
        if not self._may_stop or self._silent:
            return
        self._send_no_more()
        self._lease.end()
        self._held = False
        self._hooks.lease_changed(False)
        last = msgspec.structs.replace(self._next_heartbeat(), stopping=True, ended=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_S):
                while not await self._was_heard(last):
                    await asyncio.sleep(_ASK_AGAIN_S)

    async def _was_heard(self, last: commands.Heartbeat) -> bool:
        """Whether sending the last heartbeat again would change nothing."""
        try:
            await self._channel.ask_once(last, commands.Lease, timeout_s=_LAST_WORD_S)
        except (NotControllerError, PeerUnavailableError) as error:
            self._log.debug("heartbeat not answered", reason=str(error))
            return False
        except LogboomError as error:
            self._log.debug("heartbeat not answered", reason=str(error))
        return True

    async def stop(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self._send_no_more(), return_exceptions=True)

    @property
    def holds_lease(self) -> bool:
        """Whether this broker may act as a leader."""
        return self._lease.holds(self._clock.monotonic_s()) or self._is_sole_voter()

    @property
    def missed_leases(self) -> float:
        """For how long this broker has had no lease, in multiples of the lease."""
        if self.holds_lease:
            return 0.0
        return (self._clock.monotonic_s() - self._lease.end_s) * 1_000 / self._config.now.lease_ms

    @property
    def is_current(self) -> bool:
        """Whether this broker has applied everything that the controller had when it answered last, and has not asked
        since for others to lead in its place, as one does that stops or whose disk hangs."""
        return self._applied() >= self._to_apply and not (self._stopping or self._stalled)

    @property
    def behind_s(self) -> float:
        """For how long this broker has known of committed metadata that it has not applied."""
        return 0.0 if self._applied() >= self._awaited else self._clock.monotonic_s() - self._awaited_since_s

    # --- heartbeats ----------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        self._answered_s = self._clock.monotonic_s()
        while True:
            if len(self._in_flight) < _IN_FLIGHT_MAX:
                task = asyncio.ensure_future(self._send(self._next_heartbeat()))
                self._in_flight.add(task)
                task.add_done_callback(self._in_flight.discard)
            await self._pause(self._config.now.heartbeat_ms / 1_000)

    def _send_no_more(self) -> tuple[asyncio.Task[None], ...]:
        """Ignore answers to what is in flight; returns those tasks."""
        self._silent = True
        tasks = (*self._in_flight, *(() if self._beating is None else (self._beating,)))
        for task in tasks:
            task.cancel()
        return tasks

    def _next_heartbeat(self) -> commands.Heartbeat:
        self._sent += 1
        stalled = self._hooks.disk_hangs()
        if stalled:
            # From before it is said until somebody has heard that it is over.
            self._stalled, self._last_stalled = True, self._sent
        return commands.Heartbeat(
            broker=self._identity.broker_id,
            epoch=self.epoch,
            applied=self._applied(),
            ready=self._ready,
            stopping=self._stopping,
            stalled=stalled,
            levels=OWN_LEVELS,
            number=self._sent,
            wall_ms=self._settled_clock.own_ms(),
        )

    async def _send(self, heartbeat: commands.Heartbeat) -> None:
        sent_s = self._clock.monotonic_s()
        try:
            if sent_s - self._answered_s > _UNANSWERED_S:
                self._answered_s = sent_s
                await self._ask_another(heartbeat)
            else:
                # A later answer would be of no use: its lease would have ended.
                timeout_s = self._config.now.lease_ms / 1_000
                lease = await self._channel.ask_once(heartbeat, commands.Lease, timeout_s=timeout_s)
                await self._answered(heartbeat, sent_s, lease)
        except (StaleBrokerEpochError, UnknownBrokerError) as error:
            if not self._silent:
                self._send_no_more()
                self._hooks.expelled(_explained(error))
            return
        except LogboomError as error:
            self._log.debug("heartbeat not answered", reason=str(error))
        self._look()

    async def _answered(self, heartbeat: commands.Heartbeat, sent_s: float, lease: commands.Lease) -> None:
        if self._silent:
            return
        self._look()  # report a lease that ended meanwhile before it is renewed: it has not held all the time
        self._answered_s = max(self._answered_s, sent_s)
        self._to_apply = max(self._to_apply, lease.applied)
        if self._applied() >= self._awaited:
            self._awaited, self._awaited_since_s = self._to_apply, self._clock.monotonic_s()
        if not lease.fenced:
            self._lease.renewed(sent_s)
            self._stalled = self._stalled and heartbeat.number <= self._last_stalled
        if heartbeat.number < self._last_answered:
            return  # what it says is older than what is known
        self._last_answered = heartbeat.number
        self._settled_clock.others_show(lease.wall_ms)
        async with self._changed:
            self.fenced, self._may_stop = lease.fenced, lease.may_stop
            self._changed.notify_all()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    # --- the lease -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Report whether the lease holds, if that has changed, and check again when it ends."""
        holds = self.holds_lease
        if holds != self._held:
            self._held = holds
            if not holds:
                self._log.warning("the lease of this broker is over: nothing is committed until it is renewed")
            self._hooks.lease_changed(holds)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if holds and not self._is_sole_voter():
            delay_s = max(self._lease.end_s - self._clock.monotonic_s(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)
