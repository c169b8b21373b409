"""An event loop that looks for work for a moment before it sleeps: how long, and where it does not."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from logboom.host import IdlePoll

POLL_US = 100
LOOK_NS = 3_000


class TurningLoop:
    """Takes calls, and makes them turn by turn. Each turn takes as long as one look at the sockets."""

    def __init__(self) -> None:
        self.ready: deque[Callable[[], object]] = deque()
        self.now_ns = 0

    def call_soon(self, callback: Callable[[], object], *_: Any) -> None:
        self.ready.append(callback)

    def turn(self, took_ns: int = LOOK_NS) -> bool:
        """One turn; whether there was anything to do, or else the loop would sleep."""
        self.now_ns += took_ns
        calls, self.ready = self.ready, deque()
        for call in calls:
            call()
        return bool(calls)

    def turn_until_asleep(self) -> int:
        """Nanoseconds until the loop would sleep."""
        start_ns = self.now_ns
        while self.turn():
            assert self.now_ns - start_ns < 10_000_000, "the loop never sleeps again"
        return self.now_ns - start_ns


def polling() -> tuple[TurningLoop, IdlePoll]:
    loop = TurningLoop()
    return loop, IdlePoll(cast("asyncio.AbstractEventLoop", loop), POLL_US, monotonic_ns=lambda: loop.now_ns)


def miss(loop: TurningLoop, poll: IdlePoll) -> int:
    """Work, behind which nothing comes. The nanoseconds until the loop sleeps."""
    poll.worked()
    return loop.turn_until_asleep()


def test_a_loop_polls_for_its_time_after_work_and_sleeps_then() -> None:
    loop, poll = polling()
    took_ns = miss(loop, poll)
    assert POLL_US * 1_000 <= took_ns <= POLL_US * 1_000 + 4 * LOOK_NS
    assert not loop.turn()


def test_work_that_is_found_makes_it_poll_anew() -> None:
    loop, poll = polling()
    poll.worked()
    for _ in range(10):
        for _ in range(20):
            loop.turn()
        poll.worked()
    took_ns = loop.turn_until_asleep()
    assert POLL_US * 1_000 <= took_ns <= POLL_US * 1_000 + 4 * LOOK_NS


def test_several_pieces_of_work_in_one_turn_begin_one_poll() -> None:
    loop, poll = polling()
    for _ in range(5):
        poll.worked()
    assert len(loop.ready) == 1


def test_polls_that_find_nothing_are_given_up_and_tried_now_and_then() -> None:
    loop, poll = polling()
    polled = sum(miss(loop, poll) > LOOK_NS * 2 for _ in range(6_400))
    assert 100 <= polled <= 150  # one of 64, after the first ones


def test_polls_that_begin_to_find_something_again_are_taken_up() -> None:
    loop, poll = polling()
    for _ in range(1_000):
        miss(loop, poll)
    for _ in range(64):
        poll.worked()  # one of these polls
    for _ in range(100):
        loop.turn()
        loop.turn()
        poll.worked()
    loop.turn_until_asleep()
    assert miss(loop, poll) >= POLL_US * 1_000


def test_a_loop_whose_core_others_want_sleeps_at_once_for_a_while() -> None:
    loop, poll = polling()
    poll.worked()
    for _ in range(5):
        loop.turn()
    loop.turn(took_ns=400_000)  # another thread had the core
    assert not loop.turn()
    rests = 0
    while miss(loop, poll) <= LOOK_NS * 2:
        rests += 1
    assert rests == 15


def test_a_long_turn_that_brings_work_is_no_reason_to_rest() -> None:
    loop, poll = polling()
    poll.worked()
    loop.turn()
    poll.worked()
    loop.turn(took_ns=400_000)
    assert loop.turn()
    assert miss(loop, poll) >= POLL_US * 1_000 - LOOK_NS
