"""Settings of a stream that change while clients write to it, through the protocol: what the next request meets."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, Running, batch, run, running
from tests.kafka.test_altering_apis import NONE, altered
from tests.kafka.test_hot_apis import fetched, produced
from tests.support.waiting import WAIT_S

from logboom.records import read_header

ALTER, INCREMENTAL = 33, 44
Send = Callable[..., Awaitable[Any]]


async def changed(client: Client, key: int, name: str, value: str) -> None:
    assert await altered(client, key, 1, [(name, value)]) == (NONE, None)


def with_stream(path: Path, body: Callable[[Running, Client, Any, Send], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running(path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")

            async def send(size: int, **fields: Any) -> Any:
                return await produced(client, 9, stream, 0, batch(bytes(size), **fields))

            await body(node, client, stream, send)

    run(main)


@pytest.mark.parametrize("key", [ALTER, INCREMENTAL])
def test_max_message_bytes(tmp_path: Path, key: int) -> None:
    async def body(node: Running, client: Client, stream: Any, send: Send) -> None:
        assert (await send(5_000)).error_code is NONE
        await changed(client, key, "max.message.bytes", "1000")
        assert (await send(5_000)).error_code is ErrorCode.message_too_large
        assert (await send(500)).error_code is NONE
        await changed(client, key, "max.message.bytes", "10000")
        assert (await send(5_000)).error_code is NONE
        (part,) = await fetched(client, 11, stream, {0: 0})
        assert part.high_watermark == 3

    with_stream(tmp_path, body)


@pytest.mark.parametrize("key", [ALTER, INCREMENTAL])
def test_message_timestamp_type(tmp_path: Path, key: int) -> None:
    async def body(node: Running, client: Client, stream: Any, send: Send) -> None:
        assert (await send(1, timestamp_ms=5)).log_append_time is None
        await changed(client, key, "message.timestamp.type", "LogAppendTime")
        stamped = await send(1, timestamp_ms=6)
        assert stamped.log_append_time is not None
        await changed(client, key, "message.timestamp.type", "CreateTime")
        assert (await send(1, timestamp_ms=7)).log_append_time is None
        times = []
        for offset in range(3):
            (part,) = await fetched(client, 11, stream, {0: offset}, partition_max_bytes=1)
            times.append(read_header(part.records).max_timestamp)
        assert (times[0], times[2]) == (5, 7)
        assert times[1] == int(stamped.log_append_time.timestamp() * 1000)

    with_stream(tmp_path, body)


def segments(path: Path) -> list[int]:
    return sorted(int(file.stem) for file in (path / "streams" / "s-0").glob("*.log"))


@pytest.mark.parametrize("key", [ALTER, INCREMENTAL])
def test_segment_bytes(tmp_path: Path, key: int) -> None:
    async def body(node: Running, client: Client, stream: Any, send: Send) -> None:
        for _ in range(4):
            assert (await send(10_000)).error_code is NONE
        assert segments(node.broker.config.data_dir) == [0]
        await changed(client, key, "segment.bytes", "20000")
        for _ in range(2):
            assert (await send(10_000)).error_code is NONE
        assert segments(node.broker.config.data_dir) == [0, 4, 5]
        # What no segment can hold is refused, and told.
        refused = await send(30_000)
        assert refused.error_code is ErrorCode.record_list_too_large
        assert "20000" in refused.error_message
        await changed(client, key, "segment.bytes", "1000000")
        for _ in range(2):
            assert (await send(30_000)).error_code is NONE
        assert segments(node.broker.config.data_dir) == [0, 4, 5]

    with_stream(tmp_path, body)


@pytest.mark.parametrize("key", [ALTER, INCREMENTAL])
def test_segment_ms(tmp_path: Path, key: int) -> None:
    async def body(node: Running, client: Client, stream: Any, send: Send) -> None:
        for _ in range(3):
            assert (await send(10)).error_code is NONE
        assert segments(node.broker.config.data_dir) == [0]
        await changed(client, key, "segment.ms", "1000")
        end = 3
        async with asyncio.timeout(WAIT_S):
            while len(segments(node.broker.config.data_dir)) == 1:
                await asyncio.sleep(0.05)
                assert (await send(10)).error_code is NONE
                end += 1
        assert segments(node.broker.config.data_dir) == [0, end - 1]

    with_stream(tmp_path, body)
