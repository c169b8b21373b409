"""Simulated time: it jumps, keeps asyncio's order, and says what waits for ever."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from logboom.sim.process import ProcessEndedError
from logboom.sim.scheduler import START_S, StuckError
from logboom.sim.simulation import FaultError, Simulation


def test_time_jumps_and_a_year_costs_nothing() -> None:
    async def main() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    assert Simulation(1).run(main(), max_s=1e9) == START_S + 365 * 86_400


def test_time_passes_whatever_is_waited_for() -> None:
    """Somebody who waits for the end of a lease by a clock that runs a little faster waited for ever."""

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        began_s, passed = loop.time(), asyncio.Event()
        loop.call_later(1e-15, passed.set)
        await passed.wait()
        return loop.time() > began_s

    assert Simulation(1).run(main())


def test_callbacks_run_in_the_order_of_call_soon_and_timers_of_one_moment_in_that_of_call_at() -> None:
    async def main() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        for number in range(50):
            loop.call_at(loop.time() + 1, seen.append, number)
        loop.call_later(0.5, seen.append, -1)
        for number in range(100, 150):
            loop.call_soon_threadsafe(seen.append, number)
        await asyncio.sleep(2)
        return seen

    assert Simulation(1).run(main()) == [*range(100, 150), -1, *range(50)]


def test_a_cancelled_timer_does_not_run_and_time_does_not_go_there() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1_000, pytest.fail).cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert Simulation(1).run(main()) == START_S + 1


def test_timeouts_tasks_and_locks_of_asyncio_work() -> None:
    async def main() -> tuple[list[int], float]:
        loop, order, lock = asyncio.get_running_loop(), list[int](), asyncio.Lock()

        async def work(number: int) -> None:
            async with lock:
                await asyncio.sleep(1)
                order.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(work(number))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 2)
        return order, loop.time()

    assert Simulation(1).run(main()) == ([0, 1, 2], START_S + 3 + 5 + 2)


async def _waits_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def _sleeps_again_and_again() -> None:
    while True:
        await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("work", "says"),
    [(_waits_for_ever, "nothing can happen any more"), (_sleeps_again_and_again, "not done at 1010.000 s")],
)
def test_what_can_never_end_is_an_error_that_names_it(work: Callable[[], Awaitable[None]], says: str) -> None:
    with pytest.raises(StuckError, match=f"{says}.*director: {work.__name__} at test_loop.py"):
        Simulation(1).run(work(), max_s=10)  # type: ignore[arg-type]


def test_a_loop_that_never_lets_time_pass_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.sim.scheduler._STEPS_WITHOUT_TIME_MAX", 1_000)

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match=r"1000 steps without any time passing, the last: task .*main"):
        Simulation(1).run(main())


def test_an_error_that_nobody_catches_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: [][0])
        await asyncio.sleep(1)

    with pytest.raises(FaultError, match="IndexError"):
        Simulation(1).run(main())


def test_a_killed_process_does_nothing_more_and_its_tasks_are_closed() -> None:
    simulation, seen = Simulation(1), list[str]()

    async def victim() -> None:
        asyncio.get_running_loop().call_later(1, seen.append, "a timer of the dead")
        try:
            while True:
                await asyncio.sleep(0.1)
                seen.append("lives")
        finally:
            seen.append("closed")

    async def main() -> None:
        process = simulation.process("victim")
        running = process.run(victim())
        await asyncio.sleep(0.35)
        process.kill()
        seen.append("killed")
        with pytest.raises(ProcessEndedError):
            await running
        await asyncio.sleep(10)

    simulation.run(main())
    assert seen == ["lives", "lives", "lives", "closed", "killed"]


def test_results_and_errors_come_back_to_the_process_that_asked() -> None:
    simulation = Simulation(1)

    async def fails() -> None:
        raise ValueError("as it should")

    async def main() -> str:
        other = simulation.process("other")
        with pytest.raises(ValueError, match="as it should"):
            await other.run(fails())
        return await other.run(asyncio.sleep(1, "done"))

    assert simulation.run(main()) == "done"


def test_an_error_of_a_task_that_nobody_looked_at_fails_the_run() -> None:
    async def fails() -> None:
        raise ValueError("nobody looks at it")

    async def main() -> None:
        asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(1)

    with pytest.raises(FaultError, match="nobody looks at it"):
        Simulation(1).run(main())
