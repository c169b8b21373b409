"""Requests that wait for the group: proposals until their entry is applied, reads until the leader is confirmed.

Everything is called on the loop. A waiter that was cancelled is skipped.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from logboom.base.errors import LogboomError, NotControllerError
from logboom.broker.raft.ports import ProposalLostError, ProposalRejectedError
from logboom.raft import ConfState, Entry, EntryId, Index

Waiter = asyncio.Future[Index]
_QUESTIONS_MAX: Final = 16
"""Questions of readers that a majority has not answered yet."""


class PendingProposals:
    """PendingProposals on their way: given to the node, then in its log, in the order of the log, then applied."""

    def __init__(self) -> None:
        self._proposed: set[Waiter] = set()
        self._waiting: deque[tuple[EntryId, Waiter]] = deque()

    def __len__(self) -> int:
        return len(self._proposed) + len(self._waiting)

    def proposed(self, waiter: Waiter) -> None:
        """It is given to the node. The waiter is its token, too."""
        self._proposed.add(waiter)

    def appended(self, token: object, entry_id: EntryId) -> None:
        """It is the last entry of the log now."""
        assert isinstance(token, asyncio.Future)
        self._proposed.discard(token)
        self._waiting.append((entry_id, token))

    def dropped(self, token: object, reason: str) -> None:
        """It did not get into the log."""
        assert isinstance(token, asyncio.Future)
        self._proposed.discard(token)
        fail(token, ProposalRejectedError(f"this broker is not the controller, or not at the moment: {reason}"))

    def applied(self, entry: Entry) -> None:
        """An entry was applied. Its proposal is answered; what was proposed in an earlier term and stands behind it is
        lost, because terms only rise along the log."""
        while self._waiting:
            entry_id, waiter = self._waiting[0]
            if entry_id.index > entry.index and entry_id.term >= entry.term:
                return
            self._waiting.popleft()
            if entry_id == entry.id:
                answer(waiter, entry.index)
            else:
                fail(waiter, ProposalLostError("another controller was elected before the change was committed"))

    def restored(self, index: Index, error: LogboomError) -> None:
        """A snapshot has taken the place of all entries up to `index`: `error` for what was proposed among them."""
        waiting, self._waiting = self._waiting, deque()
        for entry_id, waiter in waiting:
            if entry_id.index <= index:
                fail(waiter, error)
            else:
                self._waiting.append((entry_id, waiter))

    def end(self, error: LogboomError) -> None:
        """Nothing more will be applied here."""
        for waiter in self._proposed:
            fail(waiter, error)
        self._proposed.clear()
        while self._waiting:
            fail(self._waiting.popleft()[1], error)


class MemberChanges:
    """The members of the group, as far as their changes are applied here, and who waits for a change of them."""

    def __init__(self, members: ConfState) -> None:
        self.members = members
        self._index = Index(0)
        self._waiting: list[Waiter] = []
        self._failure: LogboomError | None = None

    async def wait_for(self, index: Index) -> None:
        """Return once the change that is the entry `index` holds here. Raises the error of `end`, also after it."""
        if self._index < index:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            waiter: Waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def changed(self, index: Index, members: ConfState) -> None:
        """These are the members since the entry `index`. There is one change at a time, for which all wait."""
        self.members, self._index = members, index
        for waiter in self._waiting:
            answer(waiter, index)
        self._waiting.clear()

    def end(self, error: LogboomError) -> None:
        """Nothing more will be applied here."""
        self._failure = error
        for waiter in self._waiting:
            fail(waiter, error)
        self._waiting.clear()


class _Asked(NamedTuple):
    """A reader that waits for a majority."""

    first: int
    """The first question that was put for it."""
    urgent: bool
    waiter: Waiter


class PendingReads:
    """Linearizable reads: each waits until a majority has confirmed that this node leads (ReadIndex, thesis 6.4). A
    confirmation counts only for readers that came before it was asked for, so each reader has a question put at once;
    what comes while `_QUESTIONS_MAX` are under way shares the next one. Over slow links a reader would else wait for
    two answers. Readers that are not urgent wait for the group's next heartbeats, and share those.

    A question that is put again leaves the one before it valid: were only the latest answer taken, a group whose
    answers take longer than the timeout, as on a machine without processor time to spare, would confirm nothing.
    """

    def __init__(self, ask: Callable[[int, bool], None], timeout_s: float) -> None:
        """`ask` puts the question of that number to the group, and says whether it is urgent; `timeout_s` after the
        last question another one is put for those that still wait."""
        self._ask = ask
        self._timeout_s = timeout_s
        self._number = self._answered = 0
        self._asked: list[_Asked] = []
        self._next: list[tuple[bool, Waiter]] = []
        self._confirmed: list[tuple[Index, Waiter]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiter: Waiter, *, urgent: bool) -> None:
        """A reader came. An urgent one does not wait for questions that wait for heartbeats."""
        self._next.append((urgent, waiter))
        if self._number - self._answered < _QUESTIONS_MAX or (urgent and not any(one.urgent for one in self._asked)):
            self._put()

    def _put(self, *, again: bool = False) -> None:
        """Put a question for those that came since the last one; `again`: for all that wait."""
        came = [_Asked(self._number + 1, urgent, waiter) for urgent, waiter in self._next]
        urgent = any(one.urgent for one in (*came, *(self._asked if again else ())))
        self._asked = [one for one in (*self._asked, *came) if not one.waiter.done()]
        self._next.clear()
        self._stop_timer()
        if self._asked:
            self._number += 1
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, partial(self._put, again=True))
            self._ask(self._number, urgent)

    def answered(self, number: int, index: Index, applied: Index) -> None:
        """This node led when the question of that number was asked, and `index` was committed then."""
        self._answered = max(self._answered, number)
        self._confirmed.extend((index, one.waiter) for one in self._asked if one.first <= number)
        self._asked = [one for one in self._asked if one.first > number]
        self.applied(applied)
        if self._next or not self._asked:
            self._put()

    def applied(self, applied: Index) -> None:
        """Everything up to `applied` is applied: readers of an index up to there are answered."""
        if not self._confirmed:
            return
        for index, waiter in self._confirmed:
            if index <= applied:
                answer(waiter, index)
        self._confirmed = [(index, waiter) for index, waiter in self._confirmed if index > applied]

    def leadership_lost(self) -> None:
        """Refuse reads that are not confirmed. Those that are, and wait for an index to be applied, still get it."""
        self._refuse(NotControllerError("this broker is not the controller any more"))

    def end(self, error: LogboomError) -> None:
        """Nothing more will be applied here."""
        self._refuse(error)
        for _, waiter in self._confirmed:
            fail(waiter, error)
        self._confirmed.clear()

    def _refuse(self, error: LogboomError) -> None:
        self._stop_timer()
        for waiter in (*(one.waiter for one in self._asked), *(waiter for _, waiter in self._next)):
            fail(waiter, error)
        self._asked.clear()
        self._next.clear()
        self._answered = self._number

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def answer(waiter: Waiter, index: Index) -> None:
    """Answer a waiter, if it still waits."""
    if not waiter.done():
        waiter.set_result(index)


def fail(waiter: Waiter, error: LogboomError) -> None:
    """Give a waiter an error, if it still waits."""
    if not waiter.done():
        waiter.set_exception(error)
