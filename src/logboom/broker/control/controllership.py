"""Who is the controller, as this broker knows: the leader of the consensus group, by broker id.

Life: that of the broker. The group updates it; whoever sends commands to the controller reads it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId
from logboom.broker.control.nodes import NodeDirectory
from logboom.broker.raft.ports import Leadership


class Controllership:
    """`channel.ControllerView`. On the loop."""

    def __init__(self, nodes: NodeDirectory) -> None:
        self._nodes = nodes
        self._leadership = Leadership()
        self.failure: LogboomError | None = None
        """Why this broker has stopped following the metadata log, if so: it does not see further changes."""
        self._changed = asyncio.Event()

    @property
    def serving(self) -> bool:
        """Whether this broker is the controller."""
        return self._leadership.serving

    @property
    def controller(self) -> BrokerId | None:
        """The broker that is, as far as known."""
        leader = self._leadership.leader
        return None if leader is None else self._nodes.broker(leader)

    @property
    def term(self) -> int:
        """The term of the group in which that is so."""
        return self._leadership.term

    @property
    def leadership(self) -> Leadership:
        """The same, as the group has it."""
        return self._leadership

    def update(self, leadership: Leadership) -> None:
        """The group reports who leads."""
        if leadership != self._leadership:
            self._leadership = leadership
            self._changed.set()
            self._changed = asyncio.Event()

    def fail(self, error: LogboomError) -> None:
        """The group has ended on this broker."""
        self.failure = error
        self.update(Leadership(None, self._leadership.term))

    def changed(self) -> Coroutine[Any, Any, object]:
        """`channel.ControllerView`."""
        return self._changed.wait()  # of the event that is current at this call, whenever the coroutine begins
