"""Many streams attached to a subject each: how soon a broker that starts has subscribed, and what they cost at rest."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from logboom.bench import footprint
from logboom.bench.servers import LogboomServer, NatsServer
from logboom.bench.wire import BenchError

_WHOLE_MAX_S = 120.0
_SETTLE_S = 5.0
"""What new streams have left to do after they are served is no idling."""


@dataclass(frozen=True)
class AttachedLoad:
    """So many streams; each is looked at for this long while nothing happens."""

    streams: int = 1_000
    seconds: float = 10.0
    starts: int = 3


def run_attached(load: AttachedLoad, directory: Path, note: Callable[[str], None]) -> dict[str, Any]:
    """Streams without subjects, then the same ones attached, then starts of the broker with them.

    Seconds: until all are subscribed after the request that attaches them, and from the start of the broker's process
    until it serves clients, and until nats-server has all its subscriptions; `cpu_s` is what the process has taken by
    then, which says more than the time on a busy machine. Shares of a core in percent, of the broker and of
    nats-server, with nothing to do: no streams, streams alone, streams attached.
    """
    nats = NatsServer(directory / "nats", None)
    broker = LogboomServer(directory / "broker", {"nats.servers": nats.url})
    try:
        nats.prepare()
        nats.start()
        broker.start()
        note("idle without a stream ...")
        result: dict[str, Any] = {"idle_without": _idle(broker, nats, load.seconds)}
        bare = [f"bare-{number}" for number in range(load.streams)]
        note(f"{load.streams:,} streams without subjects ...")
        result["created_s"] = _create(broker, bare, attached=False)
        result["idle_bare"] = _idle(broker, nats, load.seconds)
        _delete(broker, bare)
        note(f"{load.streams:,} streams attached to a subject each ...")
        began = time.perf_counter()
        result["created_attached_s"] = _create(broker, [f"attached-{number}" for number in range(load.streams)])
        result["subscribed_s"] = _subscribed(nats, load.streams, began)
        result["idle_attached"] = _idle(broker, nats, load.seconds)
        result["starts"] = []
        for number in range(load.starts):
            note(f"start of the broker, {number + 1} of {load.starts} ...")
            broker.stop()
            began = time.perf_counter()
            served_s = broker.start()
            subscribed_s = _subscribed(nats, load.streams, began)
            cpu_s = round(footprint.cpu_ns(broker.pid) / 1e9, 3)
            result["starts"].append({"served_s": round(served_s, 3), "subscribed_s": subscribed_s, "cpu_s": cpu_s})
        result["versions"] = {server.name: server.version() for server in (broker, nats)}
    finally:
        broker.remove()
        nats.remove()
    return result


def _idle(broker: LogboomServer, nats: NatsServer, seconds: float) -> dict[str, float]:
    time.sleep(_SETTLE_S)
    before, began = [footprint.cpu_ns(server.pid) for server in (broker, nats)], time.perf_counter()
    time.sleep(seconds)
    took_s = time.perf_counter() - began
    shares = [
        round((footprint.cpu_ns(server.pid) - used) / 1e7 / took_s, 3)
        for server, used in zip((broker, nats), before, strict=True)
    ]
    return {
        "broker_cpu_percent": shares[0],
        "nats_cpu_percent": shares[1],
        "broker_memory_mb": round(footprint.memory_bytes(broker.pid) / 1e6, 1),
    }


def _admin(broker: LogboomServer) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address, "socket.timeout.ms": 120_000, "log_level": 0})


def _create(broker: LogboomServer, names: list[str], *, attached: bool = True) -> float:
    began = time.perf_counter()
    topics = [
        NewTopic(name, 1, 1, config={"logboom.nats.subjects": f"bench.{name}"} if attached else {}) for name in names
    ]
    admin = _admin(broker)  # held while the answers are awaited
    try:
        for made in admin.create_topics(topics, request_timeout=_WHOLE_MAX_S).values():
            made.result(_WHOLE_MAX_S)
    except KafkaException as error:
        raise BenchError(f"not all streams could be made: {error.args[0].str()}") from None
    return round(time.perf_counter() - began, 3)


def _delete(broker: LogboomServer, names: list[str]) -> None:
    admin = _admin(broker)
    try:
        for gone in admin.delete_topics(names, request_timeout=_WHOLE_MAX_S).values():
            gone.result(_WHOLE_MAX_S)
    except KafkaException as error:
        raise BenchError(f"not all streams could be deleted: {error.args[0].str()}") from None


def _subscribed(nats: NatsServer, count: int, began: float) -> float:
    """Seconds from `began` until nats-server has so many subscriptions."""
    while nats.subscriptions() < count:
        if time.perf_counter() - began > _WHOLE_MAX_S:
            raise BenchError(f"{nats.subscriptions()} of {count} subjects are subscribed")
        time.sleep(0.01)
    return round(time.perf_counter() - began, 3)
