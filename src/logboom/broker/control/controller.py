"""The controller: executes commands while this broker leads the consensus group, one at a time and each to its end.

A command that has begun goes on even if its caller is gone: it must not stop between its commit and what follows from
it. Only heartbeats do not wait for the others, since they must be answered while a thousand partitions are created.

Life: that of the broker. `leadership_changed` begins and ends controllerships; `drain` before the log closes.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import structs

from logboom.base.errors import InvalidRequestError, NotControllerError
from logboom.broker.control import broker_commands, commands, stream_commands
from logboom.broker.control.commands import Answer, AnyCommand
from logboom.broker.control.context import ControlContext
from logboom.broker.control.elections import Elections
from logboom.broker.control.liveness import ConfirmLeadership, Liveness
from logboom.broker.control.unclean_recovery import AskEnds, UncleanRecovery

Result = TypeVar("Result")
_Command = Callable[[ControlContext, Any], Awaitable[object]]

_COMMANDS: Final[Mapping[type[commands.Command], _Command]] = {
    commands.CreateStream: stream_commands.create,
    commands.CreateStreams: stream_commands.create_many,
    commands.EnsureStream: stream_commands.ensure,
    commands.AddPartitions: stream_commands.grow,
    commands.ChangeStreamConfig: stream_commands.configure,
    commands.DeleteStream: stream_commands.delete,
    commands.ChangeBrokerConfig: stream_commands.configure_broker,
    commands.ChangeQuotas: stream_commands.change_client_quotas,
    commands.AllocateProducerIds: stream_commands.allocate,
    commands.ChangeIsr: broker_commands.change_isrs,
    commands.ReplicasLost: broker_commands.lose_replicas,
    commands.Reassign: broker_commands.move,
    commands.DrainBroker: broker_commands.drain_broker,
    commands.UnregisterBroker: broker_commands.unregister_broker,
}


class Controller:
    """See the module. On the loop."""

    def __init__(self, context: ControlContext, confirm_leadership: ConfirmLeadership, ask_ends: AskEnds) -> None:
        """`confirm_leadership` returns once this broker has led the group at some time after the call; `ask_ends` is
        for `recovery`."""
        self._context = context
        self._confirm_leadership = confirm_leadership
        self._liveness = Liveness(context, confirm_leadership=confirm_leadership, in_order=self.in_order)
        self.recovery = UncleanRecovery(
            context, self.in_order, lambda: self._serving, ask_ends, self._liveness.is_alive
        )
        self._elections = Elections(context, self.in_order, self.recovery.ends_of)
        self._serving = False
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def serving(self) -> bool:
        """Whether this broker is the controller."""
        return self._serving

    def leadership_changed(self, *, serving: bool) -> None:
        """This broker begins or ends to be the controller."""
        if serving == self._serving:
            return
        self._serving = serving
        if serving:
            self._liveness.begin()
        else:
            self._liveness.end()

    async def execute(self, command: AnyCommand, revision: int | None = None) -> Answer:
        """Execute a command. Raises NotControllerError, and what the command raises; ConcurrentChangeError where what
        it changes was changed by an entry of the metadata log behind `revision`."""
        if not self._serving:
            raise NotControllerError("this broker is not the controller")
        if isinstance(command, commands.Heartbeat):
            lease = await self._liveness.heartbeat(command)
            return commands.answer(self._context.writer.applied_index, lease)
        if isinstance(command, commands.Elect):
            await self._elections.execute(command, revision)
            return commands.answer(self._context.writer.applied_index, None)
        function = _COMMANDS.get(type(command))
        if isinstance(command, commands.SetMetadataLevel):
            function = partial(broker_commands.set_metadata_level, told=self._liveness.levels)
        if isinstance(command, commands.RegisterBroker):
            await self._confirm_leadership()  # who is refused ends: no word of a controller that is none any more
            function = partial(broker_commands.register_broker, check_has_ended=self._liveness.check_has_ended)
        if function is None:
            raise InvalidRequestError(f"the controller does not know {type(command).__name__}")
        context = replace(self._context, revision=revision)
        value = await self.in_order(lambda: function(context, command))
        if isinstance(value, commands.Registered):
            value = structs.replace(value, wall_ms=self._liveness.wall_ms)
        return commands.answer(self._context.writer.applied_index, value)

    async def in_order(self, change: Callable[[], Awaitable[Result]]) -> Result:
        """Run one change after the other, each to its end even if its caller is cancelled in the middle."""

        async def alone() -> Result:
            async with self._lock:
                if not self._serving:
                    raise NotControllerError("this broker is not the controller any more")
                return await change()

        return await asyncio.shield(self._start(alone()))

    async def drain(self, seconds: float) -> None:
        """Return once all changes that were begun have ended, or after this many seconds; no lease ends any more."""
        await self._liveness.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn where the caller is gone
