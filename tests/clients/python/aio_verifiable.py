"""aiokafka as Kafka's VerifiableProducer and VerifiableConsumer are: until SIGTERM, with the same lines on the output.

produce BOOTSTRAP TOPIC RECORDS_PER_S    idempotent, acks=all
consume BOOTSTRAP TOPIC GROUP            commits what it has read, poll by poll
"""

import asyncio
import json
import signal
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError


def say(name: str, **values: object) -> None:
    print(json.dumps({"name": name, **values}), flush=True)


async def produce(bootstrap: str, topic: str, records_per_s: int, over: asyncio.Event) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=2, request_timeout_ms=120_000
    )
    await producer.start()
    waiting: set[asyncio.Future[Any]] = set()

    def told(future: asyncio.Future[Any], number: int) -> None:
        waiting.discard(future)
        if (error := future.exception()) is not None:
            say("producer_send_error", value=str(number), exception=type(error).__name__, message=str(error))
        else:
            meta = future.result()
            say("producer_send_success", value=str(number), partition=meta.partition, offset=meta.offset)

    number = 0
    while not over.is_set():
        future = await producer.send(topic, str(number).encode())
        waiting.add(future)
        future.add_done_callback(lambda future, number=number: told(future, number))
        number += 1
        await asyncio.sleep(1 / records_per_s)
    await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 300)
    await producer.stop()


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        say("partitions_revoked", partitions=[{"partition": one.partition} for one in revoked])

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        say("partitions_assigned", partitions=[{"partition": one.partition} for one in assigned])


async def consume(bootstrap: str, topic: str, group: str, over: asyncio.Event) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not over.is_set():
        read = await consumer.getmany(timeout_ms=200)
        if not read:
            continue
        spans = [
            (place.partition, records[0].offset, records[-1].offset, len(records)) for place, records in read.items()
        ]
        say(
            "records_consumed",
            partitions=[
                {"partition": index, "minOffset": first, "maxOffset": last, "count": count}
                for index, first, last, count in spans
            ],
        )
        error = ""
        try:
            await consumer.commit({TopicPartition(topic, index): last + 1 for index, _, last, _ in spans})
        except KafkaError as fault:
            error = repr(fault)
        offsets = [{"partition": index, "offset": last + 1} for index, _, last, _ in spans]
        say("offsets_committed", offsets=offsets, success=not error, error=error)
    await consumer.stop()


async def main(verb: str, bootstrap: str, topic: str, last: str) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    if verb == "produce":
        await produce(bootstrap, topic, int(last), over)
    else:
        await consume(bootstrap, topic, last, over)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
