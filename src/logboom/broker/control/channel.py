"""How a command gets from any broker to the controller, and its answer back.

If this broker is the controller the command is executed here, otherwise it goes to the broker that leads the consensus
group. While no leader is known, or the last one does not answer, the command waits for another one, within its time. It
may have been executed already then: every command can be repeated (`commands.settled_by`).

A connection may deliver a command late, when its sender has long sent it again, or was told that its outcome is not
known. So a command names the controllership that it is meant for, and no later one executes it. A command that changes
objects which people change (`commands.ConditionalCommand`) also names the entry of the metadata log up to which this
broker had applied the log when the command was made: the controller executes it only if no later entry has changed the
same objects. If one has, the command is built again from the current image, as long as it is certain that no copy of it
was executed; otherwise its outcome stays unknown. So each command is executed at most once, and never after a later
change of the same objects.

An answer names the entry of the metadata log that holds the change. The caller gets it once this broker has applied
that entry: it reads its own writes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeAlias

from logboom.base.errors import (
    ConcurrentChangeError,
    InvalidRequestError,
    LogboomError,
    NotControllerError,
    OutcomeUnknownError,
    StorageError,
)
from logboom.base.ids import BrokerId
from logboom.base.ports import Bytes, Clock
from logboom.broker.control import commands
from logboom.broker.control.commands import FORWARDED, Answer, AnyCommand, ConditionalCommand, Request
from logboom.broker.peers import Address, FrameKind, PeerIdentity, Peers, PeerUnavailableError

_PAUSE_S: Final = 0.05
"""The pause before a command is tried again although nothing has changed."""
_FORWARD_S: Final = 5.0


MakeCommand: TypeAlias = Callable[[], AnyCommand]
"""Makes a command from the current image. Raises LogboomError."""


class Execute(Protocol):
    """Executes a command on the controller, if no entry after `revision` has changed the same objects. Raises
    NotControllerError if this broker is not the controller."""

    async def __call__(self, command: AnyCommand, revision: int | None) -> Answer: ...


class AppliedMetadata(Protocol):
    """How far this broker has applied the metadata log."""

    @property
    def applied_index(self) -> int:
        """The last entry that is in the image."""

    async def applied(self, index: int) -> None:
        """Return once the entry of an index is applied."""


class ControllerView(Protocol):
    """Who leads the consensus group."""

    @property
    def serving(self) -> bool:
        """Whether this broker is the controller."""

    @property
    def controller(self) -> BrokerId | None:
        """The broker that is the controller, as far as known."""

    @property
    def term(self) -> int:
        """The term of that controllership."""

    @property
    def failure(self) -> LogboomError | None:
        """Why this broker can no longer see changes; None if it can."""

    def changed(self) -> Coroutine[Any, Any, object]:
        """A coroutine that returns when the controller changes, or this broker begins or ceases to be it, after this
        call; also where that happens before the coroutine begins."""


class ControlChannel:
    """See the module. Life: that of the broker."""

    def __init__(
        self,
        view: ControllerView,
        execute: Execute,
        peers: Peers,
        clock: Clock,
        metadata: AppliedMetadata,
        *,
        cluster_name: str,
        timeout_s: Callable[[], float],
    ) -> None:
        """`cluster_name`: the answer to one that is going to join; `timeout_s`: the time of a command."""
        self._view = view
        self._execute = execute
        self._peers = peers
        self._clock = clock
        self._metadata = metadata
        self._cluster_name = cluster_name
        self._timeout_s = timeout_s
        peers.serve(FrameKind.CONTROL, self._asked)

    async def submit(self, command: AnyCommand | MakeCommand, kind: Any = None) -> Any:
        """Have the controller execute a command; returns its value, of type `kind`, once this broker has applied the
        change. A command that depends on the image, such as a list and one entry more, is given as a function, which is
        called again if others change the same objects.

        Raises what the command raises; NotControllerError if no controller was found in time; ConcurrentChangeError if
        others kept changing the same objects, and then nothing was changed; OutcomeUnknownError if something may have
        been.
        """
        answer = await self._until_answered(command if callable(command) else lambda: command)
        await self._metadata.applied(answer.index)
        return commands.value_of(answer, kind)

    async def ask_once(self, command: AnyCommand, kind: Any, *, timeout_s: float) -> Any:
        """As `submit`, without retries and without waiting for the change to be applied here.

        Raises PeerUnavailableError too.
        """
        return commands.value_of(await self._once(command, None, timeout_s), kind)

    async def ask_address(self, address: Address, command: AnyCommand, kind: Any, *, timeout_s: float) -> Any:
        """Ask a broker of which only the address is known; it passes the command on to the controller if it is one of
        `commands.FORWARDED`.

        Raises what the command raises, and PeerUnavailableError.
        """
        body = commands.encode(Request(command=command, forward=True))
        _, data = await self._peers.call_address(address, FrameKind.CONTROL, (body,), timeout_s=timeout_s)
        return commands.value_of(commands.decode_answer(data), kind)

    async def _until_answered(self, make: MakeCommand) -> Answer:
        end_s = self._clock.monotonic_s() + self._timeout_s()
        reason: LogboomError | None = None
        is_unknown = False
        command, revision = self._made(make)
        while (left_s := end_s - self._clock.monotonic_s()) > 0:
            if self._view.failure is not None:
                raise self._view.failure.with_traceback(None)
            try:
                return await self._once(command, revision, left_s)
            except (PeerUnavailableError, OutcomeUnknownError) as error:
                is_unknown, reason = True, error
            except NotControllerError as error:
                reason = error
            except ConcurrentChangeError as error:
                if is_unknown:
                    raise OutcomeUnknownError(
                        f"the answer of the controller was lost, and the change may have been made: {error}"
                    ) from None
                reason = error
                await self._more_applied(revision, min(_PAUSE_S, left_s))
                command, revision = self._made(make)
                continue
            except LogboomError as error:
                if is_unknown and commands.settled_by(command, error):
                    return commands.answer(0)
                raise
            await self._changed_or(min(_PAUSE_S, left_s))
        if is_unknown:
            raise OutcomeUnknownError(f"the controller did not answer in time; the change may have been made: {reason}")
        if isinstance(reason, ConcurrentChangeError):
            raise reason
        raise NotControllerError(
            f"no controller was found in time, so nothing was changed: {reason}. It needs a majority of the voters"
        )

    def _made(self, make: MakeCommand) -> tuple[AnyCommand, int | None]:
        """A command, and the metadata entry of the image that it was made from."""
        command = make()
        return command, self._metadata.applied_index if isinstance(command, ConditionalCommand) else None

    async def _more_applied(self, revision: int | None, seconds: float) -> None:
        """Return once this broker knows more than it did, or after this many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._metadata.applied((revision or 0) + 1)

    async def _once(self, command: AnyCommand, revision: int | None, timeout_s: float) -> Answer:
        if self._view.serving:
            async with _bounded(timeout_s):
                return await self._execute(command, revision)
        controller = self._view.controller
        if controller is None:
            raise NotControllerError("no controller is known")
        body = commands.encode(Request(command=command, term=self._view.term, revision=revision))
        call = asyncio.ensure_future(self._peers.call(controller, FrameKind.CONTROL, (body,), timeout_s=timeout_s))
        return commands.decode_answer(await self._unless_changed(call, controller))

    async def _unless_changed(self, call: "asyncio.Future[memoryview]", controller: BrokerId) -> memoryview:
        """The answer of the controller, unless another one is elected first: a frozen process answers nothing."""
        changed = asyncio.ensure_future(self._view.changed())
        try:
            await asyncio.wait((call, changed), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise PeerUnavailableError(f"broker {controller} was the controller, and has not answered")
            return call.result()
        finally:
            changed.cancel()
            call.cancel()

    async def _changed_or(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._view.changed()

    async def _asked(self, peer: PeerIdentity, body: memoryview) -> Sequence[Bytes]:
        """Another broker sends a command."""
        request = commands.decode_request(body)
        if isinstance(request.command, commands.Discover):
            return (commands.encode(commands.answer(0, self._cluster_name)),)
        if request.term not in (None, self._view.term):
            raise NotControllerError(
                f"the request is for the controller of term {request.term}; this broker is in term {self._view.term}"
            )
        if request.forward and not isinstance(request.command, FORWARDED):
            raise InvalidRequestError(f"a {type(request.command).__name__} is not forwarded: ask the controller")
        try:
            if self._view.serving or not request.forward:
                return (commands.encode(await self._execute(request.command, request.revision)),)
            return (commands.encode(await self._once(request.command, request.revision, _FORWARD_S)),)
        except StorageError as error:
            if self._view.failure is None:
                raise  # of what the command does, not of the group
            # The disk of this broker is no fault of the one that asks, which finds the next controller.
            raise NotControllerError(f"this broker cannot be the controller any more: {error}") from None


@contextlib.asynccontextmanager
async def _bounded(seconds: float) -> AsyncIterator[None]:
    """A time limit after which the command fails; what has begun goes on."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise OutcomeUnknownError("the change was begun and is not done yet") from None
