"""Advisories: counted together, one record a second of each kind, written when that can be."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.messages import Message, publish, records_of
from tests.broker.node import running, until
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.base.errors import InvalidRequestError, InvalidStreamNameError
from logboom.base.ids import BrokerId, DirectoryId
from logboom.broker.advisories.pending import KINDS_MAX, PendingAdvisories, records
from logboom.broker.advisories.service import ADVISORIES_STREAM
from logboom.broker.broker import Broker
from logboom.broker.peers import PeerIdentity

NOTES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.sampled_from(["", "s", "t"]), st.sampled_from(["x", "y"]), st.integers(1, 9)
    )
)


async def written(broker: Broker) -> list[dict[str, Any]]:
    """What the stream holds."""
    found = await records_of(broker.replicas.find(ADVISORIES_STREAM, 0))
    assert all(one.key == json.loads(one.value or b"")["type"].encode() for one in found)
    return [json.loads(one.value or b"") for one in found]


@given(NOTES, NOTES, st.integers(1, 5))
def test_nothing_is_counted_twice_or_not_at_all(
    first: list[tuple[str, str, str, int]], later: list[tuple[str, str, str, int]], most: int
) -> None:
    pending, wanted = PendingAdvisories(), dict[tuple[str, str, str], int]()
    for kind, stream, reason, count in first:
        pending.note(kind, stream, reason, count, "why", 1)
    taken = pending.take(most)
    for kind, stream, reason, count in later:
        pending.note(kind, stream, reason, count, "why", 2)
    pending.put_back(taken)
    for *key, count in [*first, *later]:
        wanted[tuple(key)] = wanted.get(tuple(key), 0) + count  # type: ignore[index, arg-type]
    found = [json.loads(one.value) for one in records(pending.take(100), 7)]
    assert {(one["type"], one.get("stream", ""), one["reason"]): one["count"] for one in found} == wanted
    assert len(pending) == 0


def test_kinds_beyond_the_limit_are_counted_together() -> None:
    pending = PendingAdvisories()
    for number in range(KINDS_MAX + 50):
        pending.note("t", f"s{number}", "r", 1, "m" * 10_000, 1_700_000_000_123)
    found = [json.loads(one.value) for one in records(pending.take(KINDS_MAX + 100), 7)]
    assert len(found) == KINDS_MAX + 1
    assert found[-1] == {
        "type": "t",
        "time": "2023-11-14T22:13:20.123Z",
        "broker": 7,
        "reason": "others",
        "count": 50,
        "message": "m" * 500,
    }


def test_what_a_second_brings_is_one_record_of_each_kind(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            for number in range(100):
                broker.advisories.note("nats.dropped", stream="s", reason="overloaded", message=f"{number}")
            broker.advisories.note("nats.disconnected", reason="broken")
            await until(lambda: broker.counters.advisory_records == 2)
            dropped, disconnected = await written(broker)
            assert (dropped["stream"], dropped["count"], dropped["message"]) == ("s", 100, "99")
            assert disconnected.keys() == {"type", "time", "broker", "reason", "count"}
            assert broker.counters.advisories == {"nats.dropped": 100, "nats.disconnected": 1}
            broker.advisories.note("nats.dropped", stream="s", reason="overloaded")
            assert broker.counters.advisory_records == 2, "not before its second is over"
            await until(lambda: broker.counters.advisory_records == 3)

    run(body)


def test_people_can_wait_for_the_first_one_and_clients_do_not_write(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            with pytest.raises(InvalidStreamNameError, match="one of Logboom's own names"):
                await broker.catalog.create_stream(ADVISORIES_STREAM)
            broker.advisories.expect()
            await until(lambda: ADVISORIES_STREAM in broker.catalog.streams())
            partition = broker.replicas.find(ADVISORIES_STREAM, 0)
            assert await publish(broker, partition, Message(b"x")) == [InvalidStreamNameError]
            with pytest.raises(InvalidRequestError, match="is internal"):
                await broker.catalog.delete_stream(ADVISORIES_STREAM)

    run(body)


def test_what_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, max_streams=1) as broker:  # __consumer_offsets is the one
            broker.advisories.note("nats.dropped", stream="s", count=2)
            await until(lambda: broker.counters.failed_advisory_writes)
            broker.advisories.note("nats.dropped", stream="s", count=3)
            await broker.catalog.change_broker_config("", {"logboom.broker.max_streams": "9"})
            await until(lambda: broker.counters.advisory_records)
            assert [one["count"] for one in await written(broker)] == [5]

    run(body)


def test_a_stop_writes_what_was_noted(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            broker.advisories.note("nats.dropped", stream="s")
        async with running(tmp_path) as broker:
            assert [one["stream"] for one in await written(broker)] == ["s"]

    run(body)


@pytest.mark.parametrize("sent", [b"", b"\x90", b"\x91\x93\x01\xc4\x01a", b"\x91\x93\x01\xa1a\xa1b", b"\xff" * 100])
def test_what_another_broker_sends_is_looked_at(tmp_path: Path, sent: bytes) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            peer = PeerIdentity(BrokerId(2), DirectoryId("d"))
            with pytest.raises(InvalidRequestError, match="advisories of broker 2 cannot be read"):
                await asyncio.wait_for(broker.advisories.asked(peer, memoryview(sent)), WAIT_S)

    run(body)
