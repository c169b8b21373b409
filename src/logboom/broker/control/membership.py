"""Membership of the consensus group: the controller adds, promotes and removes members as brokers come and go.

`voters.next_change` decides. It is asked when the brokers or the leadership have changed, and again every second while
voters are missing: that a learner has caught up is seen in the status of the group alone.

Life: that of the broker; it acts while this broker is the controller.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId
from logboom.broker.control.context import ControlContext
from logboom.broker.control.nodes import node_id_of
from logboom.broker.control.voters import MemberState, RegisteredBroker, next_change, successor, voters_wanted
from logboom.broker.raft.ports import GroupStatus
from logboom.raft import ConfChangeType, ConfChangeV2, NodeId

_LOOK_S: Final = 1.0
_FIRST_LOOKS_S: Final = 0.1
"""The pause between consecutive changes, as when a cluster of three is set up."""
_CHANGE: Final = {
    ConfChangeType.ADD_NODE: "add voter",
    ConfChangeType.ADD_LEARNER_NODE: "add learner",
    ConfChangeType.REMOVE_NODE: "remove",
    ConfChangeType.UPDATE_NODE: "update",
}


class MemberGroup(Protocol):
    """The members of the consensus group."""

    @property
    def status(self) -> GroupStatus: ...

    async def change_members(self, change: ConfChangeV2) -> None: ...

    def transfer_leadership(self, to: NodeId) -> None: ...


class MembershipManager:
    """See the module. On the loop."""

    def __init__(self, context: ControlContext, group: MemberGroup, serving: Callable[[], bool]) -> None:
        self._context = context
        self._group = group
        self._serving = serving
        self._own = node_id_of(context.identity.broker_id, context.identity.directory_id)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start watching."""
        self._task = asyncio.ensure_future(self._run())

    def look(self) -> None:
        """Brokers or the leadership have changed."""
        self._changed.set()

    async def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            pause_s = None
            if self._serving():
                pause_s = await self._change()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            self._changed.clear()

    async def _change(self) -> float | None:
        """Make one change, if there is one to make; returns when to look again, None for never."""
        status = self._group.status
        image = self._context.image
        brokers = {
            one.id: RegisteredBroker(
                node_id_of(one.id, one.directory_id),
                may_vote=one.active and not (one.draining or one.observer),
                leaves=one.draining,
                observer=one.observer,
            )
            for one in image.brokers.values()
        }
        if not brokers or not status.members:
            return None
        members = {
            one.node_id: MemberState(one.is_voter, status.last_index - one.match_index, one.recently_active)
            for one in status.members
        }
        heir = successor(brokers, members, self._own)
        if heir is not None:
            self._context.log.info("another broker becomes the controller: this one is drained")
            self._group.transfer_leadership(heir)
            return _LOOK_S
        voters_max = self._context.config.now.voters
        change = next_change(brokers, members, self._own, voters_max=voters_max)
        if change is None:
            voters = sum(one.is_voter for one in members.values())
            wanted = voters_wanted(sum(not one.observer for one in brokers.values()), voters_max)
            return None if voters == wanted else _LOOK_S
        try:
            await self._group.change_members(change)
        except LogboomError as error:
            self._context.log.warning("members of the consensus group not changed", reason=str(error))
            return _LOOK_S
        self._log_change(change, brokers)
        return _FIRST_LOOKS_S

    def _log_change(self, change: ConfChangeV2, brokers: Mapping[BrokerId, RegisteredBroker]) -> None:
        # A node whose broker was removed from the cluster is known by its number alone.
        names = {one.node_id: f"broker {broker}" for broker, one in brokers.items()}
        changes = [f"{_CHANGE[one.type]} {names.get(one.node_id, f'node {one.node_id}')}" for one in change.changes]
        self._context.log.info("members of the consensus group changed", changes=changes)
