"""Thousands of partitions: how long it takes to create them, and how long a broker that has them takes to start."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from logboom.base.settings import split_address
from logboom.bench import footprint
from logboom.bench.servers import LogboomNodes
from logboom.bench.servers.probe import kafka_brokers
from logboom.bench.wire import BenchError

_WHOLE_MAX_S = 300.0
_LOOK_EVERY_S = 1.0
"""How often all partitions are asked for, which takes a broker a while where there are thousands."""


@dataclass(frozen=True)
class PartitionsLoad:
    """`partitions` in all, in streams of `per_stream`, with `replicas` each."""

    partitions: int = 10_000
    per_stream: int = 100
    replicas: int = 3


def run_partitions(server: LogboomNodes, load: PartitionsLoad, progress: Callable[[str], None]) -> dict[str, Any]:
    """Start the nodes, create the partitions, stop one broker in order and start it, kill it and start it.

    Seconds: until every stream was answered for, until all replicas were in sync, and after each start until the broker
    serves clients beside the others and until all replicas are in sync again. The nodes run afterwards.
    """
    server.start()
    timeout_ms = int(_WHOLE_MAX_S * 1_000)  # librdkafka gives no request more time than this, 60 s by default
    admin = AdminClient({"bootstrap.servers": server.address, "socket.timeout.ms": timeout_ms, "log_level": 0})
    progress(f"creating {load.partitions:,} partitions with {load.replicas} replicas ...")
    created_s, in_sync_s = _created(admin, load)
    result: dict[str, Any] = {"created_s": created_s, "created_in_sync_s": in_sync_s}
    node = server.nodes
    for how in ("stop", "kill"):
        progress(f"{how} of a broker, and its start ...")
        server.order(how, node)
        began = time.perf_counter()
        server.order("start", node)
        address = server.address_of(node)
        while kafka_brokers(split_address(address)[1]) < server.nodes:
            time.sleep(0.01)
        served_s = time.perf_counter() - began
        cpu_s = footprint.cpu_ns(server.brokers[address]) / 1e9
        _await_in_sync(admin, load)
        result[f"after_{how}"] = {
            "served_s": round(served_s, 2),
            "served_cpu_s": round(cpu_s, 2),
            "in_sync_s": round(time.perf_counter() - began, 2),
        }
    result["memory_mb"] = [round(footprint.memory_bytes(pid) / 1e6, 1) for pid in server.brokers.values()]
    return result


def _created(admin: AdminClient, load: PartitionsLoad) -> tuple[float, float]:
    began = time.perf_counter()
    word = uuid.uuid4().hex[:8]
    topics = [
        NewTopic(f"partitions-{word}-{number}", num_partitions=load.per_stream, replication_factor=load.replicas)
        for number in range(-(-load.partitions // load.per_stream))
    ]
    try:
        for made in admin.create_topics(topics, request_timeout=_WHOLE_MAX_S, operation_timeout=300).values():
            made.result(_WHOLE_MAX_S)
    except KafkaException as error:
        raise BenchError(f"not all partitions could be made: {error.args[0].str()}") from None
    created_s = time.perf_counter() - began
    _await_in_sync(admin, load)
    return round(created_s, 2), round(time.perf_counter() - began, 2)


def _await_in_sync(admin: AdminClient, load: PartitionsLoad) -> None:
    deadline = time.monotonic() + _WHOLE_MAX_S
    while True:
        topics = admin.list_topics(timeout=60).topics.values()
        ours = [topic for topic in topics if str(topic.topic).startswith("partitions-")]
        found = [len(one.isrs) for topic in ours for one in topic.partitions.values()]
        if len(found) >= load.partitions and min(found) >= load.replicas:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"not all replicas were in sync within {_WHOLE_MAX_S:.0f} s")
        time.sleep(_LOOK_EVERY_S)
