"""What waits for the metadata group: linearizable reads and which answers count for them, changes of the members."""

import asyncio

import pytest
from tests.support import simulated

from logboom.base.errors import OutcomeUnknownError
from logboom.broker.raft.pending import MemberChanges, PendingReads, Waiter
from logboom.raft import ConfState, Index, NodeId

TIMEOUT_S = 0.4


class Asked:
    """PendingReads whose questions are noted and answered by the test."""

    def __init__(self) -> None:
        self.questions: list[tuple[int, bool]] = []
        self.reads = PendingReads(lambda number, urgent: self.questions.append((number, urgent)), TIMEOUT_S)

    def add(self, *, urgent: bool = True) -> Waiter:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self.reads.add(waiter, urgent=urgent)
        return waiter

    def answer(self, number: int) -> None:
        self.reads.answered(number, Index(5), Index(5))


def test_answers_that_take_longer_than_the_timeout_count() -> None:
    """Each was dropped for the question that had been put again meanwhile: on a busy machine, where every answer took
    longer, no lease was ever renewed."""

    async def body() -> None:
        asked = Asked()
        waiter = asked.add()
        await asyncio.sleep(3.5 * TIMEOUT_S)
        assert [number for number, _ in asked.questions] == [1, 2, 3, 4]
        asked.answer(1)
        assert waiter.result() == 5
        await asyncio.sleep(2 * TIMEOUT_S)
        assert len(asked.questions) == 4, "nobody waits"

    simulated.run(body)


def test_an_answer_counts_only_for_who_had_come_before_it_was_asked_for() -> None:
    async def body() -> None:
        asked = Asked()
        first, second = asked.add(), asked.add()
        asked.answer(1)
        assert first.done()
        assert not second.done()
        asked.answer(1)
        assert not second.done()
        asked.answer(2)
        assert second.done()

    simulated.run(body)


def test_who_comes_while_another_one_is_not_answered_waits_for_one_answer_and_not_for_two() -> None:
    """Over slow links the second answer would come after a whole lease."""

    async def body() -> None:
        asked = Asked()
        waiters = [asked.add(urgent=False) for _ in range(3)]
        assert asked.questions == [(1, False), (2, False), (3, False)]
        asked.answer(3)
        assert all(waiter.done() for waiter in waiters)
        await asyncio.sleep(2 * TIMEOUT_S)
        assert len(asked.questions) == 3, "nobody waits"

    simulated.run(body)


def test_however_many_come_only_so_many_questions_are_under_way() -> None:
    async def body() -> None:
        asked = Asked()
        waiters = [asked.add(urgent=False) for _ in range(100)]
        assert len(asked.questions) == 16
        asked.answer(7)
        assert len(asked.questions) == 17
        asked.answer(16)
        assert [waiter.done() for waiter in waiters] == [True] * 16 + [False] * 84
        asked.answer(17)
        assert all(waiter.done() for waiter in waiters)
        asked.add()
        assert asked.questions[-1] == (18, True)

    simulated.run(body)


def test_who_is_in_a_hurry_waits_for_no_question_that_waits_for_heartbeats() -> None:
    async def body() -> None:
        asked = Asked()
        patient = [asked.add(urgent=False) for _ in range(20)]
        urgent = asked.add(urgent=True)
        assert asked.questions[15:] == [(16, False), (17, True)]
        asked.answer(16)
        assert all(waiter.done() for waiter in patient[:16])
        assert not urgent.done()
        asked.answer(17)
        assert urgent.done()
        assert all(waiter.done() for waiter in patient)

    simulated.run(body)


def test_a_question_that_is_put_again_is_urgent_if_somebody_who_waits_is() -> None:
    async def body() -> None:
        asked = Asked()
        asked.add(urgent=True)
        asked.add(urgent=False)
        await asyncio.sleep(1.5 * TIMEOUT_S)
        asked.answer(1)
        await asyncio.sleep(TIMEOUT_S)
        assert asked.questions == [(1, True), (2, False), (3, True), (4, False)]

    simulated.run(body)


def test_who_waits_for_a_change_of_members_hears_of_the_end_also_where_that_came_first() -> None:
    """A change was applied, and the group ended before its caller had its turn: the caller waited for ever."""

    async def body() -> None:
        changes = MemberChanges(ConfState(voters=(NodeId(1),)))
        waiting = asyncio.create_task(changes.wait_for(Index(7)))
        await asyncio.sleep(0)
        changes.end(OutcomeUnknownError("the broker is shutting down"))
        for wait in (waiting, changes.wait_for(Index(8))):
            with pytest.raises(OutcomeUnknownError):
                await wait

    simulated.run(body)


def test_a_change_of_members_that_holds_already_is_not_waited_for() -> None:
    async def body() -> None:
        changes = MemberChanges(ConfState(voters=(NodeId(1),)))
        waiting = asyncio.create_task(changes.wait_for(Index(7)))
        await asyncio.sleep(0)
        changes.changed(Index(7), ConfState(voters=(NodeId(1), NodeId(2))))
        await waiting
        await changes.wait_for(Index(7))
        assert changes.members.voters == (1, 2)

    simulated.run(body)
