"""A disk that stands still, and peers that do not read: what waits is bounded, and others are served."""

from pathlib import Path
from typing import Any

from kio.index import load_request_schema
from tests.kafka.door import Client, batch, running, until
from tests.support.simulated import run

from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.sim.disk import SimDisk
from logboom.sim.threads import Wait, must_wait


class StandingDisk(SimDisk):
    """A disk that can be made to stand still for the records of one stream: writes of them wait until it goes on."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self.standing = False
        self._writes: list[Wait] = []
        self.fault = self._stand

    def go_on(self) -> None:
        self.standing = False
        while self._writes:
            self._writes.pop().end()

    def _stand(self, operation: str, path: str) -> None:
        if self.standing and operation == "write" and path.startswith("streams/t-") and path.endswith(".log"):
            self._writes.append(must_wait(f"the write of {path}"))
            self._writes[-1].park()


def send(client: Client, records: bytes, acks: int) -> None:
    cls = load_request_schema(0, 9)
    topic = nested(cls, "topic_data")
    data = make(nested(topic, "partition_data"), index=0, records=records)
    fields = {"transactional_id": None, "acks": acks, "timeout": milliseconds(60_000)}
    client.send(0, 9, make(cls, topic_data=(make(topic, name="t", partition_data=(data,)),), **fields))


def test_a_disk_that_stands_still_holds_up_producers_and_nobody_else(tmp_path: Path) -> None:
    """acks=0 has its answer before the disk has its bytes: it is what waits for the disk that is bounded."""
    limit, size, count = 1 << 20, 100_000, 100
    disks: list[StandingDisk] = []

    def open_disk(root: str) -> StandingDisk:
        disks.append(StandingDisk(root))
        return disks[-1]

    async def body() -> None:
        async with running(tmp_path, open_disk=open_disk, max_staged_bytes=limit) as node:
            await node.broker.catalog.create_stream("t")
            staging, (disk,) = node.broker.flusher, disks
            async with node.client() as careless, node.client() as careful, node.client() as other:
                disk.standing = True
                try:
                    for _ in range(count):
                        send(careless, batch(bytes(size)), 0)
                    await until(lambda: staging.backpressured)
                    send(careful, batch(b"x"), -1)
                    for _ in range(20):
                        await other.ask(18, 0)
                    reply = await other.ask(3, 5, topics=None, allow_auto_topic_creation=False)
                    assert [topic.name for topic in reply.topics if topic.name == "t"] == ["t"]
                    # Beyond the limit is what one turn of the loop brings from each connection: one read.
                    assert limit <= staging.staged_bytes <= limit + 5 * size
                    assert staging.backpressure_count == 1
                finally:
                    disk.go_on()
                await careful.reply()
                partition = node.broker.replicas.find("t", 0)
                await until(lambda: partition.high_watermark == count + 1)
                assert (staging.staged_bytes, staging.backpressured) == (0, False)

    run(body)


def test_a_half_closed_producer_gets_its_answer_once_the_disk_goes_on(tmp_path: Path) -> None:
    """Its request waits for capacity, and it has shut down its side meanwhile, as a tool does that sends and ends."""
    disks: list[StandingDisk] = []

    def open_disk(root: str) -> StandingDisk:
        disks.append(StandingDisk(root))
        return disks[-1]

    async def body() -> None:
        async with running(tmp_path, open_disk=open_disk, max_staged_bytes=1 << 20) as node:
            await node.broker.catalog.create_stream("t")
            (disk,) = disks
            async with node.client() as careless, node.client() as careful:
                disk.standing = True
                try:
                    for _ in range(30):
                        send(careless, batch(bytes(100_000)), 0)
                    await until(lambda: node.broker.flusher.backpressured)
                    send(careful, batch(b"x"), -1)
                    careful.writer.write_eof()
                    await until(lambda: len(node.services.registry.paused) == 2)
                finally:
                    disk.go_on()
                assert (await careful.reply()).responses[0].partition_responses[0].error_code == 0
                assert await careful.closed() == b""
            assert not node.services.registry.paused

    run(body)


def fetch_body(max_bytes: int) -> Any:
    cls = load_request_schema(1, 4)
    topic = nested(cls, "topics")
    part = make(nested(topic, "partitions"), partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    return make(
        cls,
        replica_id=-1,
        max_wait=milliseconds(0),
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=0,
        topics=(make(topic, topic="t", partitions=(part,)),),
    )


def test_long_requests_on_their_way_leave_room_for_whole_ones(tmp_path: Path) -> None:
    """Twenty that are half there, none of which ever ends: those that find no room are closed, others are answered."""
    limit = 16 << 20

    async def body() -> None:
        async with running(tmp_path, kafka={"max_inflight_total_bytes": limit}) as node:
            await node.broker.catalog.create_stream("t")
            clients = [await Client.connect(node.address) for _ in range(20)]
            try:
                for client in clients:
                    client.writer.write((8 << 20).to_bytes(4, "big") + bytes(4 << 20))
                await until(lambda: node.metrics.connections_total == 20 and node.metrics.connections <= 4)
                assert 0 < node.metrics.arriving_bytes <= limit // 2 + (8 << 20)
                async with node.client() as other:
                    send(other, batch(bytes(900_000)), -1)
                    assert (await other.reply()).responses[0].partition_responses[0].error_code == 0
            finally:
                for client in clients:
                    await client.close()
            await until(lambda: node.metrics.connections == 0)
            assert (node.metrics.arriving_bytes, node.metrics.waiting_bytes, node.metrics.inflight_bytes) == (0, 0, 0)

    run(body)


def test_one_long_request_alone_may_take_what_there_is(tmp_path: Path) -> None:
    async def body() -> None:
        limits = {"max_inflight_total_bytes": 2 << 20, "max_inflight_bytes": 1 << 20}
        async with running(tmp_path, kafka=limits) as node, node.client() as client:
            await node.broker.catalog.create_stream("t", config={"max.message.bytes": str(8 << 20)})
            send(client, batch(bytes(5_000_000)), -1)
            assert (await client.reply()).responses[0].partition_responses[0].error_code == 0
            await until(lambda: node.metrics.inflight_bytes == 0)
            assert (node.metrics.arriving_bytes, node.metrics.waiting_bytes) == (0, 0)

    run(body)


def test_a_peer_that_does_not_read_is_closed_where_its_room_is_needed(tmp_path: Path) -> None:
    async def body() -> None:
        limits = {"max_unsent_total_bytes": 1 << 20, "max_unsent_bytes": 1 << 16, "request_timeout_s": 1}
        async with running(tmp_path, kafka=limits) as node:
            await node.broker.catalog.create_stream("t", config={"max.message.bytes": str(32 << 20)})
            async with node.client() as writer:
                send(writer, batch(bytes(20_000_000)), -1)
                await writer.reply()
            idle = [await Client.connect(node.address) for _ in range(3)]
            for client in idle:
                client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                client.send(1, 4, fetch_body(32 << 20))
            await until(lambda: node.metrics.unread == 3)
            await until(lambda: node.metrics.connections == 0)
            assert node.metrics.unsent_bytes == 0
            for client in idle:
                client.writer.transport.abort()

    run(body)
