"""Quotas at the door: set, told, kept over a restart, and kept to; no test asks how long anything took."""

import asyncio
import dataclasses
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, Running, batch, running, until
from tests.kafka.door import run as run_real
from tests.support.simulated import run

from logboom.kafka.apis import load_handlers
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.wire.messages import as_milliseconds, make, milliseconds, nested

QUICK: dict[str, Any] = {"quota_window_num": 2, "quota_window_size_s": 0.1}
"""A window of a tenth of a second, so that no wait is long."""

Whose = dict[str, str | None]


async def alter(client: Client, whose: Whose, validate_only: bool = False, **values: float | None) -> Any:
    """Set or (None) remove quotas of one entity; its part of the reply."""
    reply = await alter_all(client, [(whose, values)], validate_only)
    return reply.entries[0]


async def alter_all(client: Client, wanted: list[tuple[Whose, dict[str, float | None]]], validate_only: bool) -> Any:
    cls = load_request_schema(49, 1)
    one = nested(cls, "entries")
    entries = tuple(
        make(
            one,
            entity=tuple(make(nested(one, "entity"), entity_type=t, entity_name=n) for t, n in whose.items()),
            ops=tuple(
                make(nested(one, "ops"), key=key, value=value or 0.0, remove=value is None)
                for key, value in values.items()
            ),
        )
        for whose, values in wanted
    )
    return await client.ask(49, 1, entries=entries, validate_only=validate_only)


async def describe(client: Client, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    cls = nested(load_request_schema(48, 1), "components")
    asked = tuple(make(cls, entity_type=kind, match_type=how, match=name) for kind, how, name in components)
    return await client.ask(48, 1, components=asked, strict=strict)


def told(reply: Any) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """The entries of a DescribeClientQuotas reply."""
    assert reply.error_code is ErrorCode.none, reply
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            one.key: one.value for one in entry.values
        }
        for entry in reply.entries
    }


async def produce(client: Client, records: bytes, acks: int = 1) -> Any:
    cls = load_request_schema(0, 9)
    topic = nested(cls, "topic_data")
    data = make(nested(topic, "partition_data"), index=0, records=records)
    fields = {"transactional_id": None, "acks": acks, "timeout": milliseconds(30_000)}
    client.send(0, 9, make(cls, topic_data=(make(topic, name="t", partition_data=(data,)),), **fields))
    return await client.reply() if acks else None


async def fetch(client: Client, offset: int, max_bytes: int = 1 << 20) -> Any:
    cls = load_request_schema(1, 11)
    topic = nested(cls, "topics")
    part = make(
        nested(topic, "partitions"),
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return await client.ask(
        1,
        11,
        replica_id=-1,
        max_wait=milliseconds(0),
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(make(topic, topic="t", partitions=(part,)),),
        forgotten_topics_data=(),
        rack_id="",
    )


def wait_of(reply: Any) -> int:
    return as_milliseconds(reply.throttle_time)


def test_quotas_are_set_told_and_kept_over_a_restart(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            assert (
                await alter(client, {"client-id": "a"}, producer_byte_rate=1e6, request_percentage=50.5)
            ).error_code == 0
            assert (await alter(client, {"client-id": None}, consumer_byte_rate=2e6)).error_code == 0
            assert (await alter(client, {"ip": "10.0.0.9"}, connection_creation_rate=5)).error_code == 0
            assert (await alter(client, {"client-id": "b"}, True, producer_byte_rate=1)).error_code == 0
            assert (
                await alter(client, {"client-id": "a"}, request_percentage=None, consumer_byte_rate=7)
            ).error_code == 0
        async with running(tmp_path) as node, node.client() as client:
            everything = told(await describe(client))
            assert everything == {
                (("client-id", "a"),): {"producer_byte_rate": 1e6, "consumer_byte_rate": 7},
                (("client-id", None),): {"consumer_byte_rate": 2e6},
                (("ip", "10.0.0.9"),): {"connection_creation_rate": 5},
            }, "what was only validated is not there"
            assert list(told(await describe(client, ("client-id", 0, "a")))) == [(("client-id", "a"),)]
            assert list(told(await describe(client, ("client-id", 1, None)))) == [(("client-id", None),)]
            assert len(told(await describe(client, ("client-id", 2, None), strict=True))) == 2
            assert told(await describe(client, ("user", 2, None))) == {}
            assert told(await describe(client, strict=True)) == {}

    run(body)


def test_each_entity_has_its_own_result(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, max_quotas=1) as node, node.client() as client:
            good: dict[str, float | None] = {"producer_byte_rate": 10.0}
            reply = await alter_all(
                client,
                [
                    ({"user": "ann"}, good),
                    ({"client-id": "a"}, good),
                    ({"client-id": "b"}, good),
                    ({"client-id": "c"}, {"producer_byte_rate": -1.0}),
                    ({"client-id": "c", "ip": "10.0.0.1"}, good),
                    ({"client-id": "d"}, good),
                    ({"client-id": "d"}, good),
                ],
                False,
            )
            codes = [entry.error_code for entry in reply.entries]
            invalid = ErrorCode.invalid_request
            assert codes == [invalid, ErrorCode.none, ErrorCode.policy_violation, invalid, invalid, invalid, invalid]
            assert "knows no users yet" in reply.entries[0].error_message
            assert "max_quotas is 1" in reply.entries[2].error_message
            assert list(told(await describe(client))) == [(("client-id", "a"),)]

    run(body)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("client-id", 0, None)], ErrorCode.invalid_request),
        ([("client-id", 1, "a")], ErrorCode.invalid_request),
        ([("client-id", 3, None)], ErrorCode.invalid_request),
        ([("client-id", 2, None), ("client-id", 1, None)], ErrorCode.invalid_request),
        ([("client-id", 2, None), ("ip", 1, None)], ErrorCode.invalid_request),
        ([("", 2, None)], ErrorCode.invalid_request),
        ([("host", 2, None)], ErrorCode.unsupported_version),
    ],
)
def test_filters_that_cannot_be(tmp_path: Path, components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            assert (await describe(client, *components)).error_code is code

    run(body)


async def with_stream(node: Running) -> None:
    await node.broker.catalog.create_stream("t")


def test_a_producer_is_told_to_wait_and_others_are_not(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client, node.client() as other:
            await with_stream(node)
            records = batch(bytes(20_000))
            assert wait_of(await produce(client, records)) == 0
            await alter(other, {"client-id": "test"}, producer_byte_rate=100_000)
            waits = [wait_of(await produce(client, records)) for _ in range(4)]
            assert waits[0] > 0, "20 KB at 100 KB/s with a window of 10 KB"
            assert waits[1] > 0, "the connection that was there before has it too"
            quotas = node.broker.quotas
            assert quotas.throttled["producer_byte_rate"] == sum(wait > 0 for wait in waits)
            assert quotas.throttled_ms["producer_byte_rate"] == sum(waits)
            await alter(other, {"client-id": "test"}, producer_byte_rate=None)
            assert wait_of(await produce(client, records)) == 0
            assert (await fetch(client, 0)).responses[0].partitions[0].high_watermark == 6, "nothing was lost over it"

    run(body)


def test_a_quota_that_is_lifted_ends_the_wait_for_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as other:
            await with_stream(node)
            await alter(other, {"client-id": "test"}, producer_byte_rate=1)
            assert wait_of(await produce(client, batch(bytes(2_000_000)))) > 86_400_000, "for weeks"
            await node.broker.catalog.change_quotas([((("client-id", "test"),), {"producer_byte_rate": None})])
            assert wait_of(await produce(client, batch(b"x"))) == 0

    run(body)


def test_without_a_reply_there_is_the_wait_alone(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            await with_stream(node)
            await alter(client, {"client-id": "test"}, producer_byte_rate=100_000)
            for _ in range(3):
                await produce(client, batch(bytes(20_000)), acks=0)
            await until(lambda: node.broker.replicas.find("t", 0).high_watermark == 3)
            assert node.broker.quotas.throttled["producer_byte_rate"] == 3

    run(body)


def test_the_most_specific_quota_wins_each_by_itself(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            await with_stream(node)
            await alter(client, {"client-id": None}, producer_byte_rate=10_000)
            assert wait_of(await produce(client, batch(bytes(5_000)))) > 0, "the default"
            await alter(client, {"client-id": "test"}, consumer_byte_rate=1e9)
            assert wait_of(await produce(client, batch(bytes(5_000)))) > 0, "its own quota is for other bytes"
            await alter(client, {"client-id": "test"}, producer_byte_rate=1e9)
            assert wait_of(await produce(client, batch(bytes(5_000)))) == 0, "its own"

    run(body)


def test_a_consumer_gets_nothing_while_it_waits_and_everything_in_the_end(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            await with_stream(node)
            for _ in range(10):
                await produce(client, batch(bytes(20_000)))
            await alter(client, {"client-id": "test"}, consumer_byte_rate=300_000)
            offset = waits = 0
            while offset < 10:
                reply = await fetch(client, offset)
                assert reply.error_code is ErrorCode.none
                if wait_of(reply):
                    assert reply.responses == ()
                    waits += 1
                else:
                    records = reply.responses[0].partitions[0].records
                    assert len(records) <= 30_000, "as much as a window holds"
                    offset += 1
            assert waits >= 8, "one window holds one batch"
            assert node.broker.quotas.throttled["consumer_byte_rate"] == waits

    run(body)


def test_a_batch_that_no_window_holds_comes_all_the_same(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            await with_stream(node)
            await produce(client, batch(bytes(20_000)))
            await alter(client, {"client-id": "test"}, consumer_byte_rate=1_000)
            reply = await fetch(client, 0)
            assert len(reply.responses[0].partitions[0].records) > 20_000
            assert wait_of(reply) == 0
            assert wait_of(await fetch(client, 0)) > 0, "it is paid off behind"

    run(body)


def test_every_api_throttles_a_client_over_its_request_quota(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            await with_stream(node)
            await alter(client, {"client-id": "test"}, request_percentage=0.0001)
            assert 0 < wait_of(await client.ask(3, 5, topics=None, allow_auto_topic_creation=False)) <= 100
            assert 0 < wait_of(await produce(client, batch(b"x"))) <= 100, "one sample of the window at most"
            reply = await fetch(client, 0)
            assert 0 < wait_of(reply) <= 100
            assert reply.responses[0].partitions[0].records, "its records come all the same"
            await alter(client, {"client-id": "test"}, request_percentage=None)
            assert wait_of(await produce(client, batch(b"x"))) == 0

    run_real(body)


def test_a_handler_that_waits_is_charged_for_its_steps_and_not_for_its_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata's handler, made to sleep for a second and to work for a fifth of one: 20 % and not 120 of a quota."""
    handler = load_handlers()[3]

    async def slow(context: RequestContext, request: Any) -> Any:
        until_ns = perf_counter_ns() + 200_000_000
        while perf_counter_ns() < until_ns:
            pass
        await asyncio.sleep(1)
        reply = handler.handle(context, request)
        return await reply if hasattr(reply, "__await__") else reply

    async def body() -> None:
        window: dict[str, Any] = {"quota_window_num": 2, "quota_window_size_s": 1}
        async with running(tmp_path, **window) as node, node.client() as client:
            routes = node.services.routes
            monkeypatch.setattr(routes, "handlers", {**routes.handlers, 3: dataclasses.replace(handler, handle=slow)})
            await alter(client, {"client-id": "test"}, request_percentage=10)
            wait_ms = wait_of(await client.ask(3, 5, topics=(), allow_auto_topic_creation=False))
            assert wait_ms > 500, (
                "20 percent-seconds less the 10 of a window, at 10 a second: a second, the most there is"
            )

    run_real(body)


async def alter_address(node: Running, rate: float | None) -> None:
    await node.broker.catalog.change_quotas([((("ip", "127.0.0.1"),), {"connection_creation_rate": rate})])


def test_connections_from_one_address_come_at_their_rate(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, quota_window_num=4, quota_window_size_s=1) as node:
            await alter_address(node, 1)
            for _ in range(3):
                async with node.client() as client:
                    await client.ask(18, 0)
            async with node.client() as refused:
                assert await refused.closed() == b""
            assert node.broker.quotas.throttled["connection_creation_rate"] == 1
            assert node.metrics.connections_refused == 1
            await alter_address(node, None)
            async with node.client() as client:
                await client.ask(18, 0)

    run_real(body)


def test_what_clients_call_themselves_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.broker.quotas.clients._REMEMBERED_MAX", 50)

    async def body() -> None:
        async with running(tmp_path) as node:
            await node.broker.catalog.change_quotas([((("client-id", None),), {"consumer_byte_rate": 10.0})])
            quotas = node.broker.quotas
            for number in range(500):
                meters = quotas.of(f"client-{number}")
                assert meters is not None
                meters.charge_fetch(1_000_000)
            assert len(quotas.clients) <= 50

    run(body)


def test_one_address_has_only_so_many_connections(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, kafka={"max_connections_per_address": 2}) as node:
            async with node.client() as first, node.client() as second:
                await first.ask(18, 0)
                await second.ask(18, 0)
                async with node.client() as third:
                    assert await third.closed() == b""
            await until(lambda: node.metrics.connections == 0)
            async with node.client() as client:
                await client.ask(18, 0)

    run(body)


def test_single_addresses_may_have_limits_of_their_own(tmp_path: Path) -> None:
    async def body() -> None:
        limits = {"max_connections_per_address": 0, "max_connections_per_address_overrides": "127.0.0.1:1"}
        async with running(tmp_path, kafka=limits) as node, node.client() as client:
            await client.ask(18, 0)
            async with node.client() as second:
                assert await second.closed() == b""

    run_real(body)
