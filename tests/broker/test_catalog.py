"""The way of a change of metadata: one at a time, to its end, and followed by everything that depends on it."""

import asyncio
from pathlib import Path

import pytest
from tests.broker.node import append, run, running, start, until

from logboom.base.errors import (
    InvalidPartitionsError,
    InvalidStreamNameError,
    PolicyViolationError,
    StreamExistsError,
)
from logboom.broker.stream_creation import NewStream
from logboom.metadata import Stream


def test_a_stop_right_after_a_change_of_settings_ends_at_once(tmp_path: Path) -> None:
    """Neither the stop nor the change waits for the next look at logs, an hour away: `run` bounds it."""

    async def body() -> None:
        broker = await start(tmp_path, checkpoint_interval_s=3_600, retention_check_interval_s=3_600)
        change = asyncio.create_task(broker.catalog.change_broker_config("1", {"log.retention.ms": "1000000"}))
        await asyncio.sleep(0)
        await broker.stop()
        await change

    run(body)


def test_a_change_goes_on_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            create = asyncio.create_task(broker.catalog.create_stream("orders", partitions=3))
            await asyncio.sleep(0)
            create.cancel()
            with pytest.raises(asyncio.CancelledError):
                await create
            await until(lambda: sum(one.role.leads for one in broker.replicas if one.stream.name == "orders") == 3)
            for index in range(3):
                await append(broker.replicas.find("orders", index), b"a")

    run(body)


def test_producer_ids_of_many_callers_differ_and_cost_one_record_a_block(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, producer_id_block=10) as broker:
            commits = broker.counters.metadata_commits
            given = await asyncio.gather(*(broker.producer_ids.allocate() for _ in range(95)))
            assert sorted(given) == list(range(95))
            assert broker.counters.metadata_commits - commits == 10
        async with running(tmp_path, producer_id_block=10) as broker:
            assert await broker.producer_ids.allocate() == 100

    run(body)


def test_many_partitions_of_one_request_are_several_commits(tmp_path: Path) -> None:
    """Every broker makes the partitions of a commit in one go, and must not lose its lease over it."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            commits = broker.counters.metadata_commits
            wanted = [NewStream(f"s{number}", partitions=250) for number in range(3)]
            outcomes = await broker.catalog.create_streams([*wanted, NewStream("s0", partitions=1)])
            assert [isinstance(one, Stream) for one in outcomes] == [True, True, True, False]
            assert broker.counters.metadata_commits - commits == 2, "two streams, and the third"

    run(body)


@pytest.mark.parametrize("level", [2, 3])
def test_streams_that_are_created_together_have_outcomes_of_their_own(tmp_path: Path, level: int) -> None:
    """Below level 3 other brokers may not know the command, and each stream is one of its own."""

    async def body() -> None:
        async with running(tmp_path, max_streams=253) as broker:
            await broker.catalog.create_stream("there")
            await broker.cluster_admin.set_metadata_level(level, may_lower=True, validate_only=False)
            wanted = [NewStream(f"new-{number}", partitions=2) for number in range(250)]
            wanted[7:7] = [
                NewStream("there"),
                NewStream("new-0"),
                NewStream("bad/name"),
                NewStream("no", partitions=-1),
            ]
            commits = broker.counters.metadata_commits
            outcomes = await broker.catalog.create_streams([*wanted, NewStream("last"), NewStream("too-many")])
            commits = broker.counters.metadata_commits - commits
            assert commits == (3 if level == 3 else 251)
            kinds = [type(one) for one in outcomes]
            assert kinds[7:11] == [
                StreamExistsError,
                StreamExistsError,
                InvalidStreamNameError,
                InvalidPartitionsError,
            ]
            assert kinds[-1] is PolicyViolationError
            streams = [one for one in outcomes if isinstance(one, Stream)]
            assert [one.name for one in streams] == [*(f"new-{number}" for number in range(250)), "last"]
            assert len({one.id for one in streams}) == 251
            await append(broker.replicas.find("new-249", 1), b"a")

    run(body)
