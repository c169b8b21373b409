"""aiokafka against a broker: produce, consume or admin. Prints "ok ..." last, or dies."""

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


async def produce(bootstrap: str, topic: str, first: int, count: int, codec: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
        linger_ms=2,
        request_timeout_ms=120_000,
    )
    await producer.start()
    sent = []
    for n in range(first, first + count):
        headers = [("n", str(n).encode())]
        sent.append(await producer.send(topic, f"value-{n}".encode(), key=f"key-{n % 7}".encode(), headers=headers))
        if n % 500 == 0:
            print(f"sent {n}", flush=True)
    await asyncio.wait_for(asyncio.gather(*sent), 300)
    await producer.stop()
    print(f"ok produced {count}")


async def flood(bootstrap: str, topic: str) -> None:
    """Send 0, 1, 2, ... until standard input closes; print "acked N OFFSET" for each that the broker took."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=1, request_timeout_ms=300_000
    )
    await producer.start()
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    waiting: dict[asyncio.Future[Any], int] = {}

    def acked(future: asyncio.Future[Any]) -> None:
        n = waiting.pop(future)
        if future.exception() is None:
            print("acked", n, future.result().offset, flush=True)
        else:
            print("failed", n, future.exception(), flush=True)

    n = 0
    while not over.done():
        if len(waiting) < 2_000:
            future = await producer.send(topic, str(n).encode(), partition=0)
            waiting[future] = n
            future.add_done_callback(acked)
            n += 1
        await asyncio.sleep(0.001)
    await asyncio.wait_for(producer.flush(), 300)
    await producer.stop()
    print(f"ok sent {n}")


async def consume(bootstrap: str, topic: str, group: str, count: int) -> None:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    last: dict[bytes, int] = {}
    seen = 0
    async with asyncio.timeout(300):
        while seen < count:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                for message in messages:
                    n = int(message.value.removeprefix(b"value-"))
                    assert dict(message.headers)["n"] == str(n).encode()
                    assert n > last.get(message.key, -1), f"{message.key!r}: {n} after {last[message.key]}"
                    last[message.key] = n
                    seen += 1
            if seen:
                await consumer.commit()
    await consumer.stop()
    print(f"ok consumed {seen}")


async def admin(bootstrap: str, topic: str) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    await client.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    assert topic in await client.list_topics()
    await client.list_consumer_groups()
    await client.delete_topics([topic])
    assert topic not in await client.list_topics()
    await client.close()
    print(f"ok admin {topic}")


if __name__ == "__main__":
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "produce":
        for part, codec in enumerate(rest[4].split(",")):
            asyncio.run(produce(rest[0], rest[1], int(rest[2]) + part * int(rest[3]), int(rest[3]), codec))
    elif verb == "consume":
        asyncio.run(consume(rest[0], rest[1], rest[2], int(rest[3])))
    elif verb == "flood":
        asyncio.run(flood(rest[0], rest[1]))
    else:
        asyncio.run(admin(rest[0], rest[1]))
