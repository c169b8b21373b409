"""How long a cluster does not go on after kill -9: acks when a leader dies, decisions when the controller dies.

The client is librdkafka with its defaults (acks=all), one message to each partition in turn at a held rate. What it
does to find the new leader is part of the time, as it is for a user.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from logboom.bench.servers import LogboomNodes
from logboom.bench.streams import bench_stream
from logboom.bench.wire import BenchError

_BEFORE_S = 3.0
_BACK_MAX_S = 60.0
_TRY_EVERY_S = 0.01


@dataclass(frozen=True)
class FailoverLoad:
    """Partitions of the stream, messages a second over all of them, and how often each death is tried."""

    partitions: int = 1
    rate_per_s: int = 500
    deaths: int = 3


def run_failover(server: LogboomNodes, load: FailoverLoad, progress: Callable[[str], None]) -> dict[str, Any]:
    """Start the nodes; kill leaders, then controllers, one after the other; seconds of each. They run afterwards."""
    server.start()
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    leaders, controllers = [], []
    config = {"min.insync.replicas": "2"}
    for number in range(load.deaths):
        with bench_stream(server.address, partitions=load.partitions, replicas=3, config=config) as stream:
            progress(f"kill -9 of a leader, {number + 1} of {load.deaths} ...")
            node = admin.list_topics(stream, timeout=15).topics[stream].partitions[0].leader
            leaders.append(round(_ack_gap(server, stream, node, load), 3))
            _bring_back(server, node)
    for number in range(load.deaths):
        progress(f"kill -9 of the controller, {number + 1} of {load.deaths} ...")
        node = _controller(admin)
        controllers.append(round(_decision_gap(server, node), 3))
        _bring_back(server, node)
    return {"leader_gap_s": leaders, "controller_gap_s": controllers}


def _controller(admin: AdminClient) -> int:
    """Who decides; waits until the broker that is asked knows it. Raises BenchError where none does in time."""
    deadline_s = time.monotonic() + _BACK_MAX_S
    while time.monotonic() < deadline_s:
        found = admin.describe_cluster(request_timeout=15).result(20).controller
        if found is not None and found.id >= 0:
            return int(found.id)
        time.sleep(_TRY_EVERY_S)
    raise BenchError(f"no controller is known after {_BACK_MAX_S:g} s")


def _ack_gap(server: LogboomNodes, stream: str, node: int, load: FailoverLoad) -> float:
    """Seconds from the kill until every partition has acked a message that was sent after it.

    Each is sent one at once: at the held rate alone, the turn of a partition would come some seconds later.
    """
    waiting: set[int] = set()
    failures: list[str] = []

    def acked(error: object, message: Any) -> None:
        if error is not None:
            failures.append(str(error))
        else:
            waiting.discard(message.partition())

    producer = Producer({"bootstrap.servers": server.address, "linger.ms": 0, "log_level": 0})
    sent = 0

    def send_until(enough: Callable[[], bool]) -> None:
        nonlocal sent
        due_s = time.perf_counter()
        while not enough():
            producer.produce(stream, b"one message", partition=sent % load.partitions, on_delivery=acked)
            sent += 1
            due_s += 1 / load.rate_per_s
            producer.poll(max(0.0, due_s - time.perf_counter()))
            if failures:
                raise BenchError(f"a message was lost over the death of a leader: {failures[0]}")

    calm_s = time.perf_counter() + max(_BEFORE_S, 2 * load.partitions / load.rate_per_s)
    send_until(lambda: time.perf_counter() > calm_s)
    producer.flush(30)
    waiting.update(range(load.partitions))
    server.order("kill", node)
    killed_s = time.perf_counter()
    for index in range(load.partitions):
        producer.produce(stream, b"one message", partition=index, on_delivery=acked)
    send_until(lambda: not waiting or time.perf_counter() > killed_s + _BACK_MAX_S)
    took_s = time.perf_counter() - killed_s
    if waiting or producer.flush(30):
        raise BenchError(f"{len(waiting)} partitions acked nothing for {_BACK_MAX_S:.0f} s after their leader died")
    return took_s


def _decision_gap(server: LogboomNodes, node: int) -> float:
    """Seconds from the kill of the controller until another broker has created a stream.

    Each try is by a client of its own, as each call of a tool is: one of librdkafka's that knows of the dead
    controller does not ask for another one for five minutes.
    """
    alive = ",".join(address for address in server.brokers if address != server.address_of(node))
    admin = AdminClient({"bootstrap.servers": alive, "log_level": 0})
    name = f"decided-{uuid.uuid4().hex[:8]}"
    admin.list_topics(timeout=15)
    server.order("kill", node)
    killed_s = time.perf_counter()
    while True:
        try:
            topic = NewTopic(name, num_partitions=1, replication_factor=2)
            admin.create_topics([topic], request_timeout=5)[name].result(10)
        except KafkaException as error:
            if time.perf_counter() > killed_s + _BACK_MAX_S:
                raise BenchError(f"nobody decided for {_BACK_MAX_S:.0f} s: {error.args[0].str()}") from None
            time.sleep(_TRY_EVERY_S)
            admin = AdminClient({"bootstrap.servers": alive, "log_level": 0})
        else:
            return time.perf_counter() - killed_s


def _bring_back(server: LogboomNodes, node: int) -> None:
    server.order("start", node)
    deadline = time.monotonic() + _BACK_MAX_S
    while not server.answers():
        if time.monotonic() > deadline:
            raise BenchError(f"broker {node} did not come back within {_BACK_MAX_S:.0f} s")
        time.sleep(0.05)
