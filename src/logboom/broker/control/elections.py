"""Elections on request (KIP-460): all that wait for their turn at the same time are one change of the metadata.

An operator, or a tool, asks for hundreds at once: for every partition that a dead broker led, or for every preferred
leader. An entry of the metadata log for each takes as many round trips between the voters, one after the other.

Life: that of the controller. On the loop.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from logboom.base.errors import LogboomError, NotControllerError
from logboom.base.ids import BrokerId
from logboom.broker.control.commands import Elect
from logboom.broker.control.context import ControlContext
from logboom.broker.control.unclean_recovery import shown
from logboom.metadata.assignment import Election
from logboom.metadata.leadership import NO_ENDS, LogEnd, elect
from logboom.metadata.membership import changes_by_stream
from logboom.metadata.records import PartitionsChanged

InOrder: TypeAlias = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
"""Runs one change of the metadata after the other."""
AskEndsOf: TypeAlias = Callable[[str, int], Awaitable[Mapping[BrokerId, LogEnd]]]
"""How far the logs of a partition's active replicas go."""


@dataclass(eq=False)
class _Request:
    """One that waits for its turn."""

    command: Elect
    revision: int | None
    ends: Mapping[BrokerId, LogEnd]
    refusal: LogboomError | None = None


class Elections:
    """See the module."""

    def __init__(self, context: ControlContext, in_order: InOrder, ends_of: AskEndsOf) -> None:
        self._context = context
        self._in_order = in_order
        self._ends_of = ends_of
        self._waiting: list[_Request] = []

    async def execute(self, command: Elect, revision: int | None) -> None:
        """Elect a leader. Raises what `metadata.leadership.elect`, `ControlContext.commit` and `in_order` raise."""
        # Asked before it has its turn: other commands must not wait for brokers that do not answer.
        ends = await self._ends_of(command.name, command.index) if command.unclean else NO_ENDS
        request = _Request(command, revision, ends)
        self._waiting.append(request)
        try:
            await self._in_order(lambda: self._elect_with(request))
        except NotControllerError:
            if request in self._waiting:
                raise
        finally:
            if request in self._waiting:
                self._waiting.remove(request)  # it had no turn, and whoever asked for it is told so, or gone
        if request.refusal is not None:
            raise request.refusal.with_traceback(None)

    async def _elect_with(self, request: _Request) -> None:
        """The turn of a request, in which all others that wait are dealt with; of one partition the first alone."""
        if request not in self._waiting:
            return  # dealt with in the turn of another one, or given up
        some: dict[tuple[str, int], _Request] = {}
        for one in (request, *self._waiting):
            some.setdefault((one.command.name, one.command.index), one)
        self._waiting = [one for one in self._waiting if one not in some.values()]
        await self._commit(list(some.values()))

    async def _commit(self, requests: list[_Request]) -> None:
        image, records, taken = self._context.image, list[PartitionsChanged](), list[_Request]()
        for one in requests:
            try:
                records += self._records(one)
            except LogboomError as error:
                one.refusal = error
            else:
                taken.append(one)
        try:
            await self._context.commit(changes_by_stream(image, records))
        except LogboomError as error:
            for one in taken:
                one.refusal = error
            return
        for one in taken:
            self._context.log.info(
                "leader elected on request",
                stream=one.command.name,
                partition=one.command.index,
                how=_kind(one.command).value,
                ends=shown(one.ends),
            )

    def _records(self, one: _Request) -> tuple[PartitionsChanged, ...]:
        context = replace(self._context, revision=one.revision)
        command = one.command
        records = elect(context.image, command.name, command.index, _kind(command), context.minimum_of, one.ends)
        context.checked(records)
        return records


def _kind(command: Elect) -> Election:
    return Election.UNCLEAN if command.unclean else Election.PREFERRED
