"""Simulated threads: one at a time, in simulated time, in an order that the seed alone decides."""

import asyncio
from functools import partial
from queue import Empty
from threading import Lock

import pytest

from logboom.sim.scheduler import SimulationError, StuckError
from logboom.sim.simulation import FaultError, Simulation
from logboom.sim.threads import current, sleep


def order_of(seed: int) -> list[str]:
    simulation, seen = Simulation(seed), list[str]()

    def work(name: str) -> None:
        for step in range(3):
            sleep(0.001, "its work")
            seen.append(f"{name}{step}")

    async def main() -> None:
        workers = simulation.process("p").runtime.workers
        for name in "abcdef":
            workers.thread(name, partial(work, name))
        await asyncio.sleep(1)

    simulation.run(main())
    return seen


def test_threads_run_side_by_side_in_an_order_of_the_seeds() -> None:
    orders = [order_of(seed) for seed in range(8)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len({tuple(order) for order in orders}) > 4
    assert [order_of(seed) for seed in range(8)] == orders


def test_a_pool_has_so_many_threads_and_no_more() -> None:
    simulation, now = Simulation(1), dict[str, int](running=0, most=0)

    def work() -> None:
        now["running"] += 1
        now["most"] = max(now["most"], now["running"])
        sleep(1, "its work")
        now["running"] -= 1

    async def main() -> float:
        pool = simulation.process("p").runtime.workers.pool("pool", 3)
        began_s = asyncio.get_running_loop().time()
        await asyncio.gather(*(asyncio.wrap_future(pool.submit(work)) for _ in range(9)))
        pool.shutdown(wait=False)
        with pytest.raises(RuntimeError):
            pool.submit(work)
        return asyncio.get_running_loop().time() - began_s

    assert simulation.run(main()) == pytest.approx(3, abs=0.01)
    assert now["most"] == 3


def twice(number: int) -> int:
    return 2 * number


def test_a_mailbox_and_a_join_wait_and_a_thread_may_wait_for_a_pool() -> None:
    simulation, got = Simulation(1), list[object]()

    async def main() -> None:
        process = simulation.process("p")
        workers = process.runtime.workers
        mailbox, pool = workers.mailbox(), workers.pool("pool", 1)

        def consume() -> None:
            assert current() is not None
            while (item := mailbox.get()) is not None:
                got.append(pool.submit(twice, item).result())
            with pytest.raises(Empty):
                mailbox.get_nowait()

        thread = workers.thread("consumer", consume)
        for number in (1, 2, 3):
            mailbox.put(number)
            await asyncio.sleep(1)

        joiner = workers.pool("joiner", 1)
        await asyncio.wrap_future(joiner.submit(thread.join, 5.0))
        got.append("still there")
        mailbox.put(None)
        await asyncio.wrap_future(joiner.submit(thread.join))
        got.append("ended")

    simulation.run(main())
    assert got == [2, 4, 6, "still there", "ended"]


def test_an_event_loop_must_not_wait() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        workers = simulation.process("p").runtime.workers
        with pytest.raises(SimulationError, match="an event loop would wait"):
            workers.mailbox().get()
        with pytest.raises(SimulationError, match="an event loop would wait"):
            workers.pool("pool", 1).submit(sleep, 1.0, "nothing").result()

    simulation.run(main())


def test_a_thread_that_waits_for_ever_is_named() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        process = simulation.process("p")
        mailbox = process.runtime.workers.mailbox()
        process.runtime.workers.thread("flusher", mailbox.get)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match="p: thread flusher: something in the mailbox"):
        simulation.run(main())


def test_a_thread_that_waits_for_a_lock_which_a_waiting_thread_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.sim.threads._SWITCH_TRY_S", 0.1)
    simulation, lock = Simulation(1), Lock()

    def work() -> None:
        with lock:
            sleep(1, "the disk")

    async def main() -> None:
        workers = simulation.process("p").runtime.workers
        workers.thread("first", work)
        await asyncio.sleep(0.5)
        workers.thread("second", work)
        await asyncio.sleep(10)

    with pytest.raises(SimulationError, match=r"the thread second waits for a lock .* at test_threads\.py:\d+"):
        simulation.run(main())


def test_a_killed_process_unwinds_its_threads_where_they_wait() -> None:
    simulation, seen = Simulation(1), list[str]()

    def work() -> None:
        try:
            sleep(1_000, "a disk")
            seen.append("went on")
        finally:
            seen.append("unwound")

    async def main() -> None:
        process = simulation.process("p")
        process.runtime.workers.thread("t", work)
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(5_000)

    simulation.run(main())
    assert seen == ["unwound"]


def test_an_error_in_a_thread_fails_the_run() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        simulation.process("p").runtime.workers.thread("t", lambda: [][0])
        await asyncio.sleep(1)

    with pytest.raises(FaultError, match="the thread t ended: IndexError"):
        simulation.run(main())


def test_to_thread_runs_on_the_process_own_threads() -> None:
    simulation = Simulation(1)

    async def inside() -> str | None:
        def name() -> str | None:
            thread = current()
            return None if thread is None else thread.name

        assert name() is None
        return await asyncio.to_thread(name)

    async def main() -> str | None:
        return await simulation.process("p").run(inside())

    assert simulation.run(main()) == "default-0"
