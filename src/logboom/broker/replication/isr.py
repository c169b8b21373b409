"""Proposals of in-sync replicas, and the clock that decides when followers are late.

All proposals that come up in one turn of the loop go to the controller together, one call at a time. A proposal stays
pending until the metadata answers it (`IsrChanged`), or it is refused permanently; if its outcome is not known, it is
sent again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, Final

from logboom.base.errors import IneligibleReplicaError, LogboomError
from logboom.base.ids import BrokerId
from logboom.broker.partition.leader import Leader
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.replication.context import ReplicationContext
from logboom.metadata.leadership import IsrProposal
from logboom.replication.join_wait import JOIN_WAIT_S
from logboom.replication.leadership import ProposalRefused, Ticked

_RETRY_MS: Final = 500
_PARTITIONS_PER_TURN: Final = 500
_PROPOSALS_PER_CALL: Final = 500
"""What the controller takes in a few hundredths of a second."""
_LOOKS_PER_LAG: Final = 10
"""How often a follower is looked at within `replica_lag_max_ms`: one that is late leaves at most a tenth later."""


class IsrKeeper:
    """See the module. Life: that of the broker, until `stop`. On the loop."""

    def __init__(
        self,
        context: ReplicationContext,
        confirm: Callable[[Partition, StreamIdPartition], None],
        heard_of: Callable[[], frozenset[BrokerId]],
    ) -> None:
        """`confirm` tells the leader of a partition again what its followers outside the ISR have. `heard_of`: the
        followers that have asked this broker for anything lately."""
        self._broker_id = context.broker_id
        self._controller = context.cluster.isr
        self._find = context.find
        self._confirm = confirm
        self._heard_of = heard_of
        self._own_epoch = context.cluster.own_epoch
        self._registered = context.registered_epoch
        self._config = context.config
        self._clock = context.runtime.clock
        self._ids = context.runtime.ids
        self._log = context.log
        self._limited_log = context.limited_log
        self._led: dict[StreamIdPartition, None] = {}
        self._join_waits: dict[StreamIdPartition, asyncio.TimerHandle] = {}
        self._due: dict[StreamIdPartition, None] = {}
        self._proposing: asyncio.Task[None] | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._looked_early = asyncio.Event()
        self._stopped = False

    # --- partitions ---------------------------------------------------------------------------------------------

    def leads(self, key: StreamIdPartition, leads: bool) -> None:
        """This broker begins or ends to lead a partition that has followers."""
        if not leads:
            self._led.pop(key, None)
            self._end_join_wait(key)
            return
        self._led[key] = None
        if self._ticking is None and not self._stopped:
            self._ticking = self._started(self._tick())

    def forget(self, key: StreamIdPartition) -> None:
        """A partition is gone from this broker."""
        self._led.pop(key, None)
        self._due.pop(key, None)
        self._end_join_wait(key)

    def propose(self, key: StreamIdPartition) -> None:
        """The leader of a partition has a proposal."""
        self._due[key] = None
        if self._proposing is None and not self._stopped:
            self._proposing = self._started(self._propose())

    def _leader(self, key: StreamIdPartition) -> Leader | None:
        try:
            role = self._find(key).role
        except LogboomError:
            return None
        return role.leader if role.leads else None

    # --- proposals ----------------------------------------------------------------------------------------------

    async def _propose(self) -> None:
        await asyncio.sleep(0)  # the rest of this turn comes along
        while self._due:
            proposals = self._take_due()
            if not proposals:
                continue
            try:
                outcomes = await self._controller.change_isr(list(proposals.values()))
            except LogboomError as error:
                self._log.info("proposals of in-sync replicas are sent again", count=len(proposals), reason=str(error))
                self._due.update(dict.fromkeys(proposals))
                await asyncio.sleep((_RETRY_MS + self._ids.below(_RETRY_MS)) / 1_000)
                continue
            for (key, proposal), outcome in zip(proposals.items(), outcomes, strict=False):
                self._decided(key, proposal, outcome)

    def _take_due(self) -> dict[StreamIdPartition, IsrProposal]:
        own_epoch = self._own_epoch()
        found: dict[StreamIdPartition, IsrProposal] = {}
        for key in tuple(islice(self._due, _PROPOSALS_PER_CALL)):
            del self._due[key]
            leader = self._leader(key)
            proposal = None if leader is None or own_epoch is None else leader.proposal(own_epoch, self._registered)
            if proposal is not None:
                found[key] = proposal
        return found

    def _decided(self, key: StreamIdPartition, proposal: IsrProposal, outcome: LogboomError | None) -> None:
        stands = self._leader(key)
        if outcome is None or stands is None:
            return
        self._limited_log.info(
            f"not changed: {type(outcome).__name__}",
            "in-sync replicas not changed",
            partition=str(self._find(key)),
            wanted=sorted(proposal.isr),
            reason=str(outcome),
        )
        own_epoch = self._own_epoch()
        same = own_epoch is not None and stands.proposal(own_epoch, self._registered) == proposal
        if same and isinstance(outcome, IneligibleReplicaError):
            stands.replication_step(ProposalRefused())
        # Any other error means that the controller knows a later state of the partition, or another leader, of which
        # the metadata will show; until then the proposal stays, and is sent again with the next tick.

    # --- time ---------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while self._led:
            self._looked_early.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.now.replica_lag_max_ms / 1_000 / _LOOKS_PER_LAG):
                    await self._looked_early.wait()
            heard_of = self._heard_of()
            for number, key in enumerate(tuple(self._led), 1):
                self._look(key, heard_of)
                if number % _PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)

    def await_join(self, key: StreamIdPartition) -> None:
        """The leader of a partition holds its high-water mark for a follower: it is looked at soon."""
        self._end_join_wait(key)
        if not self._stopped:
            self._join_waits[key] = asyncio.get_running_loop().call_later(JOIN_WAIT_S, self._join_wait_over, key)

    def _join_wait_over(self, key: StreamIdPartition) -> None:
        del self._join_waits[key]
        self._look(key, self._heard_of())

    def _end_join_wait(self, key: StreamIdPartition) -> None:
        timer = self._join_waits.pop(key, None)
        if timer is not None:
            timer.cancel()

    def look_now(self) -> None:
        """A broker began, ended or came back: check again which replicas may be in sync."""
        self._looked_early.set()

    def _look(self, key: StreamIdPartition, heard_of: frozenset[BrokerId]) -> None:
        try:
            partition = self._find(key)
        except LogboomError:
            return
        role = partition.role
        if not role.leads:
            return
        leader = role.leader
        if not partition.log.start.is_known:
            self._compare_starts(partition)
        leader.replication_step(Ticked(partition.log_end_offset, self._clock.monotonic_s(), leader.isr - heard_of))
        if len(leader.isr) < len(partition.stream.assignments[partition.index].holders):
            self._confirm(partition, key)
        if leader.has_proposal:
            self.propose(key)

    def _compare_starts(self, partition: Partition) -> None:
        """Find out from the replicas in sync whether this broker's log, which it leads, has lost its beginning."""
        leader, start, log = partition.role.leader, partition.log_start_offset, partition.log
        replicas = partition.stream.assignments[partition.index].replicas
        if leader.log_starts.any_below(start, leader.isr):
            log.start.report_lost("a replica in sync has records below")
        elif leader.isr.issuperset(replicas) and leader.log_starts.have_reached(start, leader.isr - {self._broker_id}):
            self._started(partition.deletion.confirm_start(start))

    def _started(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task is self._proposing:
            self._proposing = None
        if task is self._ticking:
            self._ticking = None
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._log.error("keeping in-sync replicas failed on an internal error", exc_info=fault)
        if self._due and self._proposing is None and not self._stopped:
            self._proposing = self._started(self._propose())
        if self._led and self._ticking is None and not self._stopped:
            self._ticking = self._started(self._tick())

    async def stop(self) -> None:
        """Propose nothing more."""
        self._stopped = True
        for key in tuple(self._join_waits):
            self._end_join_wait(key)
        tasks = [task for task in (self._proposing, self._ticking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
