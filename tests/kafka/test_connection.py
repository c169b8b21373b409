"""What a connection promises whatever is said on it: order, bounds, clear ends.

In simulated time, but for those about the order of replies and about clients that leave: they run on real sockets and
both event loops, because transports of uvloop and asyncio end connections each in their own way.
"""

import asyncio
import gc
import struct
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from tests.kafka.door import Client, Running, batch, frame, running, until, written
from tests.kafka.door import run as run_on_sockets
from tests.kafka.test_hot_apis import fetch_request, fetched, first_offsets, produce_request, produced
from tests.support.simulated import run

from logboom.base.ids import Offset
from logboom.broker.partition.replica import AppendResult, Partition
from logboom.kafka.connection.inflight import InflightQueue
from logboom.kafka.fetch.fetch import Fetch
from logboom.kafka.replies import DeferredReply
from logboom.kafka.wire.messages import make, milliseconds, nested

METADATA_V1_ALL = b"\xff\xff\xff\xff"


def events(node: Running, event: str) -> list[Any]:
    """Log lines of an event, from the door's own warnings_logged."""
    return [line for line in LOGGED if line["event"] == event]


LOGGED: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect what the door logs."""
    LOGGED.clear()

    class Log:
        def warning(self, event: str, **fields: Any) -> None:
            LOGGED.append({"event": event, **fields})

        error = warning

    monkeypatch.setattr("structlog.get_logger", lambda *names: Log())


@pytest.mark.parametrize("fast", [True, False])
def test_replies_come_in_the_order_of_requests(tmp_path: Path, fast: bool) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=4)
            expected: list[tuple[int, int]] = []
            for round_ in range(50):
                client.send(0, 9, produce_request(9, stream, {round_ % 4: batch(b"x")}))
                client.send(3, 1, body=METADATA_V1_ALL)
                client.send(1, 12, fetch_request(12, stream, {0: 0}, max_wait=milliseconds(5), min_bytes=1 << 20))
                client.send(18, 0, body=b"")
                expected += [(0, 9), (3, 1), (1, 12), (18, 0)]
            for api_key, _ in expected:
                reply = await client.reply()
                assert reply.__api_key__ == api_key

    run_on_sockets(body, fast=fast)


def test_many_requests_in_one_piece_are_answered_together(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            count = 1000
            client.writer.write(b"".join(frame(18, 0, number, b"") for number in range(count)))
            reads = 0
            received = b""
            size = len(await client.frame()) + 4
            while len(received) < (count - 1) * size:
                received += await client.reader.read(1 << 20)
                reads += 1
            numbers = [struct.unpack_from(">i", received, at + 4)[0] for at in range(0, len(received), size)]
            assert numbers == list(range(1, count))
            assert reads < count / 10, "replies of one turn leave in one write"
            assert node.metrics.api(18).requests == count

    run(body)


def test_frames_may_come_byte_by_byte(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            client.writer.transport.set_write_buffer_limits(0)
            for byte in frame(18, 0, 7, b"") * 2:
                client.writer.write(bytes([byte]))
                await client.writer.drain()
                await asyncio.sleep(0)
            for _ in range(2):
                assert (await client.frame())[:6] == b"\0\0\0\x07\0\0"

    run(body)


def test_acks_0_has_no_reply_and_tells_of_errors_by_closing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            quiet = written(produce_request(7, stream, {0: batch(b"x")}, acks=0))
            client.writer.write(frame(0, 7, 1, quiet) * 3 + frame(18, 0, 2, b""))
            assert (await client.frame())[:4] == b"\0\0\0\x02"
            assert node.broker.replicas.find("s", 0).log_end_offset == 3
            client.writer.write(frame(0, 7, 3, written(produce_request(7, stream, {9: batch(b"x")}, acks=0))))
            assert await client.closed() == b""
            assert "partition 9" in events(node, "request without a reply failed")[0]["why"]

    run(body)


def test_api_versions_of_an_unknown_version(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            client.writer.write(frame(18, 99, 5, b"\x07rubbish of a later time"))
            payload = await client.frame()
            assert struct.unpack_from(">i", payload)[0] == 5
            reply, size = entity_reader(ApiVersionsResponse)(payload, 4)
            assert size + 4 == len(payload)
            assert reply.error_code is ErrorCode.unsupported_version
            assert [(api.api_key, api.min_version, api.max_version) for api in reply.api_keys] == [(18, 0, 4)]
            assert (await client.ask(18, 3, client_software_name="a", client_software_version="1")).error_code == 0

    run(body)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_before_record_batches_gets_a_proper_error(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s")
            parts = b"".join(struct.pack(">ii", index, 3) + b"old" for index in (0, 1))
            body = struct.pack(">hi", 1, 1000) + struct.pack(">ih1si", 1, 1, b"s", 2) + parts
            client.writer.write(frame(0, version, 4, body) + frame(18, 0, 5, b""))
            payload = await client.frame()
            expected = struct.pack(">iih1si", 4, 1, 1, b"s", 2)
            for index in (0, 1):
                expected += struct.pack(">ihq", index, 35, -1) + (struct.pack(">q", -1) if version == 2 else b"")
            assert payload == expected + (bytes(4) if version else b"")
            assert (await client.frame())[:4] == b"\0\0\0\x05"
            assert node.broker.replicas.find("s", 0).log_end_offset == 0
            client.writer.write(frame(0, version, 6, struct.pack(">hi", 0, 1000) + bytes(4)))
            assert await client.closed() == b"", "acks=0 tells of an error by closing"

    run(body)


@pytest.mark.parametrize(
    ("data", "event", "why"),
    [
        (frame(999, 0, 1, b""), "request that is not served", "no such API"),
        (frame(-3, 0, 1, b""), "request that is not served", "no such API"),
        (frame(3, 99, 1, b""), "request that is not served", "served are 0 to"),
        (frame(3, -1, 1, b""), "request that is not served", "served are 0 to"),
        (frame(0, 99, 1, b""), "request that is not served", "served are 3 to"),
        (frame(3, 9, 1, b"\xff\xff\xff\xff\x07"), "request that cannot be read", "count"),
        (frame(3, 1, 1, b"\x7f\xff\xff\xff"), "request that cannot be read", "count"),
        (frame(3, 9, 1, b""), "request that cannot be read", "too early"),
        (b"\0\0\0\x08" + struct.pack(">hhi", 3, 1, 1), "request that cannot be read", "header"),
        (b"\0\0\0\x0a" + struct.pack(">hhih", 3, 1, 1, 500), "request that cannot be read", "client id"),
        (frame(3, 1, 1, METADATA_V1_ALL, b"\xff\xfe"), "request that cannot be read", "UTF-8"),
        (frame(3, 9, 1, b"")[:-1] + b"", "", ""),
        (b"\x16\x03\x01\x00\xfa\x01\x00\x00\xf6\x03\x03", "bytes that are not a Kafka request", "TLS"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "bytes that are not a Kafka request", "HTTP"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff", "bytes that are not a Kafka request", "length of -1"),
    ],
)
def test_what_is_no_request_closes_the_connection_and_says_why(
    tmp_path: Path, data: bytes, event: str, why: str
) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as other:
            client.writer.write(frame(18, 0, 1, b"") + data)
            await client.frame()
            if not event:
                client.writer.close()  # half a frame
            assert await client.closed() == b""
            assert (await other.ask(18, 0)).error_code is ErrorCode.none
            if event:
                (line,) = events(node, event)
                assert why in line["why"]

    run(body)


def test_warnings_are_rate_limited(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            for _ in range(20):
                async with node.client() as client:
                    client.writer.write(frame(999, 0, 1, b""))
                    assert await client.closed() == b""
            assert len(LOGGED) == 1
            assert node.metrics.unsupported == 20

    run(body)


def test_trailing_bytes_are_ignored_and_counted(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            client.writer.write(frame(3, 1, 3, METADATA_V1_ALL + b"more"))
            assert (await client.frame())[:4] == b"\0\0\0\x03"
            assert node.metrics.trailing == 1

    run(body)


def test_client_ids_may_be_null_and_headers_may_have_tags(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            client.writer.write(frame(3, 1, 3, METADATA_V1_ALL, None))
            assert (await client.frame())[:4] == b"\0\0\0\x03"
            payload = struct.pack(">hhih", 3, 9, 4, -1) + b"\x01\x05\x02ab" + b"\0\0\0\0\0"
            client.writer.write(struct.pack(">i", len(payload)) + payload)
            assert (await client.frame())[:4] == b"\0\0\0\x04"

    run(body)


def test_requests_beyond_the_length_limit_are_not_read(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"max_request_bytes": 2000}) as node, node.client() as client:
            client.writer.write(struct.pack(">i", 2001))
            client.writer.write(bytes(2001))
            assert await client.closed() == b""
            assert "limit of 2000" in events(node, "bytes that are not a Kafka request")[0]["why"]

    run(body)


def test_too_many_connections(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"max_connections": 2}) as node:
            async with node.client() as one, node.client() as two:
                await one.ask(18, 0)
                await two.ask(18, 0)
                async with node.client() as three:
                    assert await three.closed() == b""
                assert node.metrics.connections == 2
                assert node.metrics.connections_refused == 1
                await one.ask(18, 0)
            async with node.client() as four:
                await asyncio.sleep(0)
                while node.metrics.connections > 1:
                    await asyncio.sleep(0.01)
                await four.close()

    run(body)


def test_requests_in_flight_are_bounded_and_all_are_answered(tmp_path: Path) -> None:
    async def body() -> None:
        limits = {"max_inflight_requests": 3, "max_inflight_bytes": 1 << 20}
        async with running(tmp_path, limits) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            most = 0
            for _ in range(100):
                client.send(0, 9, produce_request(9, stream, {0: batch(b"x" * 100)}))
            for number in range(100):
                reply = await client.reply()
                most = max(most, node.metrics.inflight_requests)
                assert reply.responses[0].partition_responses[0].base_offset == number
            assert most <= 3

    run(body)


def test_requests_of_all_connections_together_are_bounded_and_everybody_has_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"max_inflight_total_requests": 4}) as node:
            stream = await node.broker.catalog.create_stream("s", partitions=1)
            async with node.client() as one, node.client() as two, node.client() as three:
                clients, most = (one, two, three), 0
                for _ in range(40):
                    for client in clients:
                        client.send(0, 9, produce_request(9, stream, {0: batch(b"x" * 40_000)}))
                for _ in range(40):
                    for client in clients:
                        reply = await client.reply()
                        assert reply.responses[0].partition_responses[0].error_code == 0
                        most = max(most, node.metrics.inflight_requests)
                assert most <= 4 + len(clients)
            assert node.metrics.inflight_requests == 0
            assert node.metrics.limit_hits["kafka.max_inflight_total_requests"] > 0

    run(body)


@pytest.mark.parametrize("limit", ["max_inflight_bytes", "max_inflight_total_bytes"])
def test_bytes_in_flight_are_bounded_and_all_is_answered(tmp_path: Path, limit: str) -> None:
    async def body() -> None:
        async with running(tmp_path, {limit: 100_000}) as node, node.client() as one, node.client() as two:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            most = 0
            for _ in range(30):
                one.send(0, 9, produce_request(9, stream, {0: batch(b"x" * 40_000)}))
                two.send(0, 9, produce_request(9, stream, {1: batch(b"x" * 40_000)}))
            for number in range(30):
                for client in (one, two):
                    reply = await client.reply()
                    assert reply.responses[0].partition_responses[0].base_offset == number
                    most = max(most, node.metrics.inflight_bytes)
            assert most <= 2 * 150_000
            assert (node.metrics.inflight_bytes, node.metrics.inflight_requests) == (0, 0)

    run(body)


def test_a_peer_that_does_not_read_is_not_read(tmp_path: Path) -> None:
    async def body() -> None:
        limits = {"max_unsent_bytes": 1024}
        async with running(tmp_path, limits) as node, node.client() as client, node.client() as other:
            stream = await node.broker.catalog.create_stream("s")
            big = batch(b"x" * 900_000)
            client.send(0, 9, produce_request(9, stream, {0: big}))
            await client.reply()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            count = 60
            for _ in range(count):
                client.send(1, 12, fetch_request(12, stream, {0: 0}))
            while node.metrics.unsent_bytes == 0:
                await asyncio.sleep(0.01)
            for _ in range(20):
                await other.ask(18, 0)
            # One reply waits in the broker, some lie in the kernel; the other fetches were not begun.
            assert node.metrics.api(1).requests < count
            assert node.metrics.unsent_bytes < 3 * len(big)
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(count):
                reply = await client.reply()
                assert len(reply.responses[0].partitions[0].records) == len(big)
            assert node.metrics.unsent_bytes == 0

    run(body)


@pytest.mark.uncompiled
def test_produce_answers_in_the_clients_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            held: list[Any] = []

            def append(records: Any, *, acks: int, done: Any) -> None:
                held.append(done)

            monkeypatch.setattr(
                type(node.broker.replicas.find("s", 1)), "append", lambda self, *a, **k: append(*a, **k)
            )
            client.send(0, 9, produce_request(9, stream, {0: batch(b"x"), 1: batch(b"x")}, timeout=milliseconds(10)))
            reply = await client.reply()
            codes = [part.error_code for part in reply.responses[0].partition_responses]
            assert codes == [ErrorCode.request_timed_out] * 2
            held[0](AppendResult(Offset(0), -1, Offset(0)))
            assert (await client.ask(18, 0)).error_code is ErrorCode.none

    run(body)


@pytest.mark.uncompiled
def test_the_first_reply_of_a_turn_leaves_at_once_and_the_others_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            held, sent = list[Any](), list[int]()
            take_ready = InflightQueue.take_ready

            def counted(self: InflightQueue) -> list[Any]:
                out = take_ready(self)
                if out:
                    sent.append(len(out))
                return out

            def append(self: Partition, records: Any, *, acks: int, done: Any) -> None:
                held.append(done)

            def answer() -> None:
                for done in held:
                    done(AppendResult(Offset(0), -1, Offset(0)))
                held.clear()

            async def ask(count: int) -> None:
                for _ in range(count):
                    client.send(0, 9, produce_request(9, stream, {0: batch(b"x"), 1: batch(b"x")}))
                await until(lambda: len(held) == 2 * count)

            monkeypatch.setattr(InflightQueue, "take_ready", counted)
            monkeypatch.setattr(Partition, "append", append)
            await ask(1)
            answer()
            assert sent == [1], "before anything else is done"
            await client.reply()
            sent.clear()
            await ask(3)
            answer()
            assert sent == [1]
            for _ in range(3):
                await client.reply()
            assert sent == [1, 2]

    run(body)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("abruptly", [True, False])
def test_a_client_may_leave_before_its_replies(tmp_path: Path, fast: bool, abruptly: bool) -> None:
    async def body() -> None:
        troubles: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, trouble: troubles.append(trouble))
        async with running(tmp_path) as node:
            stream = await node.broker.catalog.create_stream("s")
            for _ in range(20):
                client = await Client.connect(node.address)
                for _ in range(5):
                    client.send(0, 9, produce_request(9, stream, {0: batch(b"x" * 100)}))
                    client.send(1, 12, fetch_request(12, stream, {0: 1 << 40}, max_wait=milliseconds(10_000)))
                await client.writer.drain()
                if abruptly:
                    client.writer.transport.abort()
                else:
                    await client.close()
            while node.metrics.connections:
                await asyncio.sleep(0.002)
            assert (node.metrics.inflight_requests, node.metrics.inflight_bytes) == (0, 0)
            assert (node.metrics.unsent_bytes, node.metrics.waiting_fetches) == (0, 0)
            assert (node.metrics.failures, node.metrics.malformed) == (0, 0)
        assert troubles == []

    run_on_sockets(body, fast=fast)


def test_answered_requests_leave_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    """Records of a reply would else stay in memory until a collection that is rare by design."""

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            gc.collect()
            gc.disable()
            try:
                for number in range(30):
                    client.send(1, 12, fetch_request(12, stream, {0: number}, max_wait=milliseconds(20_000)))
                    await until(lambda: node.metrics.waiting_fetches)
                    async with node.client() as producer:
                        await produced(producer, 9, stream, 0, batch(b"x" * 1000))
                    (part,) = (await client.reply()).responses[0].partitions
                    assert first_offsets(part.records) == [number]
                left = [one for one in gc.get_objects() if isinstance(one, Fetch | DeferredReply)]
            finally:
                gc.enable()
            assert len(left) <= 2

    run(body)


def test_with_many_unsent_bytes_fetches_get_one_batch_at_a_time(tmp_path: Path) -> None:
    async def body() -> None:
        limits = {"max_unsent_total_bytes": 100_000, "max_unsent_bytes": 1024}
        async with running(tmp_path, limits) as node, node.client() as slow, node.client() as other:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            for _ in range(2):
                await produced(other, 3, stream, 0, batch(b"x" * 1_000_000))
                await produced(other, 3, stream, 1, batch(b"y"))
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            while node.metrics.unsent_bytes < 100_000:
                slow.send(1, 12, fetch_request(12, stream, {0: 0}))
                await asyncio.sleep(0.01)
            (part,) = await fetched(other, 12, stream, {1: 0})
            assert first_offsets(part.records) == [0]
            slow.writer.transport.abort()
            while node.metrics.unsent_bytes:
                await asyncio.sleep(0.002)
            (part,) = await fetched(other, 12, stream, {1: 0})
            assert first_offsets(part.records) == [0, 1]

    run(body)


def test_silent_connections_are_closed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"idle_timeout_s": 0.2}) as node, node.client() as client:
            await client.ask(18, 0)
            assert await client.closed() == b""
            assert node.metrics.connections == 0

    run(body)


@pytest.mark.uncompiled
def test_a_handler_that_goes_wrong_costs_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as other:
            stream = await node.broker.catalog.create_stream("s")

            def broken(*anything: Any, **more: Any) -> Any:
                raise AssertionError("a promise was broken")

            reads = type(node.broker.replicas.find("s", 0).reads)
            client.send(0, 9, produce_request(9, stream, {0: batch(b"x")}))  # nobody reads where there is nothing
            await client.reply()
            with monkeypatch.context() as patch:
                patch.setattr(reads, "read_cached", broken)
                client.send(1, 12, fetch_request(12, stream, {0: 0}))
                assert await client.closed() == b""
            assert len(events(node, "a request failed")) == 1
            with monkeypatch.context() as patch:
                patch.setattr(reads, "offset_for_time", broken)
                part = load_request_schema(2, 1)
                one = make(nested(part, "topics", "partitions"), partition_index=0, timestamp=5)
                topic = make(nested(part, "topics"), name="s", partitions=(one,))
                other.send(2, 1, make(part, replica_id=-1, topics=(topic,)))
                assert await other.closed() == b""
            assert node.metrics.failures == 2
            async with node.client() as third:
                await third.ask(18, 0)

    run(body)


def test_stop_answers_what_was_begun(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as waiting, node.client() as idle:
            stream = await node.broker.catalog.create_stream("s")
            await idle.ask(18, 0)
            waiting.send(1, 12, fetch_request(12, stream, {0: 0}, max_wait=milliseconds(30_000)))
            while not node.metrics.waiting_fetches:
                await asyncio.sleep(0)
                await asyncio.sleep(0.005)
            client.send(0, 9, produce_request(9, stream, {0: batch(b"x")}))
            while not node.metrics.api(0).requests:
                await asyncio.sleep(0.001)
            await node.door.stop(20.0)
            assert (await client.reply()).responses[0].partition_responses[0].error_code is ErrorCode.none
            assert (await waiting.reply()).responses[0].partitions[0].error_code is ErrorCode.none
            for one in (client, waiting, idle):
                assert await one.closed() == b""
            assert node.metrics.connections == 0
            with pytest.raises(OSError, match=r"."):
                await asyncio.open_connection(*node.address)

    run(body)


def test_stop_does_not_wait_for_a_peer_that_does_not_read(tmp_path: Path) -> None:
    """It ends, and leaves no connection: `run` bounds how long that takes."""

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            client.send(0, 9, produce_request(9, stream, {0: batch(b"x" * 1_000_000)}))
            await client.reply()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(50):
                client.send(1, 12, fetch_request(12, stream, {0: 0}))
            while node.metrics.unsent_bytes == 0:
                await asyncio.sleep(0.01)
            await node.door.stop(0.1)
            while node.metrics.connections:
                await asyncio.sleep(0.001)
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]

    run(body)
