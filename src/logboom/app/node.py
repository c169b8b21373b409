"""One node: a broker and its front ends, from start to stop.

Start: HTTP first, so that `/readyz` can say what the start waits for; then the listener for brokers, which a broker
may need while it starts; then the broker, which recovers; then Kafka, so that no client connects before it can be
served; then NATS, from which messages come as soon as something is subscribed to. Stop goes the other way: no new
connections, accepted requests are answered, everything is flushed and closed. Knows the parts and their order; nothing
of processes, signals, protocols or logs on disk. What the parts run on is handed in, so that `sim` runs a whole node.
"""

import asyncio
import contextlib
import errno
import importlib.metadata
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from logboom.app.config import LogLevel, NodeConfig
from logboom.app.kafka_metrics import kafka_metrics
from logboom.app.limit_metrics import limit_metrics
from logboom.app.nats_metrics import nats_metrics
from logboom.app.peer_metrics import peer_metrics
from logboom.base import build
from logboom.base.errors import LogboomError
from logboom.base.ports import Disk
from logboom.base.settings import join_address
from logboom.broker.broker import Broker
from logboom.broker.limits import broker_limit_hits, broker_limits
from logboom.broker.peers import NoPeers
from logboom.broker.runtime import Runtime
from logboom.host import OsDisk
from logboom.http.broker_metrics import broker_metrics
from logboom.http.service import HttpService, Source
from logboom.kafka.cluster.view import LISTENER as KAFKA_LISTENER
from logboom.kafka.server.server import KafkaServer, advertised_address
from logboom.nats.front_end import NatsFrontEnd
from logboom.peer.key import ClusterKeys, read_cluster_keys
from logboom.peer.server import PeerServer

ANSWER_GRACE_S: Final = 2.5
"""How long accepted requests may take to be answered; including the flush that follows, a stop takes less than 5 s."""

STOP_MAX_S: Final = 20.0
"""The longest time for a stop, which a hanging disk could block. After it the process exits, as in a crash."""


class StartError(LogboomError):
    """An address or the data directory cannot be used."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The addresses and the data directory of a node that is ready."""

    kafka: str
    advertised: str
    """What Kafka clients are told to connect to."""
    nats: str | None
    """Where publishers reach NATS; None where nothing is taken from there."""
    http: str | None
    """None if the HTTP server is turned off."""
    peer: str | None
    """Where other brokers connect; None if this one runs alone."""
    data: str


class Node:
    """The parts of one node. Life: `start`, then `stop`, once each, on one loop."""

    def __init__(
        self,
        config: NodeConfig,
        log: FilteringBoundLogger,
        *,
        runtime: Runtime | None = None,
        open_disk: Callable[[str], Disk] = OsDisk,
        read_key: Callable[[Path], ClusterKeys] = read_cluster_keys,
        process_metrics: Sequence[Collector] = (),
        set_log_level: Callable[[LogLevel], None] = lambda level: None,
    ) -> None:
        """By default on the real machine. `process_metrics` are served beside the node's own; `set_log_level` is called
        with `log.level` at the start and when it changes."""
        self._config = config
        self._log = log
        self._runtime = runtime or Runtime()
        self._open_disk = open_disk
        self._read_key = read_key
        self._process_metrics = process_metrics
        self._set_log_level = set_log_level
        self._sources: list[Source] = []
        self._http: HttpService | None = None
        self._peer: PeerServer | None = None
        self.broker: Broker | None = None
        """None before it has recovered, and after the stop."""
        self._kafka: KafkaServer | None = None
        self._nats: NatsFrontEnd | None = None
        self._phase: str | None = "starting"

    async def start(self) -> Ready:
        """Start all parts. Raises LogboomError or OSError, after stopping the parts that were started."""
        try:
            await self._start_http()
            await self._start_peer()
            self.broker = broker = await self._start_broker()
            self._follow_log_level(broker)
            version = importlib.metadata.version("logboom")
            program = build.describe()
            series_max = self._config.http.max_partition_series
            self._sources.append(lambda: broker_metrics(broker, version, program, series_max))
            kafka = await self._start_kafka(broker)
            self._start_nats(broker)
        except BaseException:  # a cancelled start too: what was begun is stopped before the error goes on
            await self.stop()
            raise
        self._phase = None
        return Ready(
            kafka=join_address(*kafka),
            advertised=join_address(*advertised_address(self._config.kafka, kafka[1])),
            nats=",".join(self._config.nats.servers) or None,
            http=self._http.address if self._http else None,
            peer=self._peer.listening if self._peer else None,
            data=str(self._config.broker.data_dir.absolute()),
        )

    def _follow_log_level(self, broker: Broker) -> None:
        broker.dynamic_settings.add("http", self._config.http)
        settings = broker.dynamic_settings.add("log", self._config.log)
        settings.subscribe(lambda config: self._set_log_level(config.level))
        self._set_log_level(settings.now.level)

    async def _start_http(self) -> None:
        if self._config.http.listen is None:
            return
        service = HttpService(
            self._config.http,
            self._sources,
            self._not_ready,
            runtime=self._runtime,
            log=self._log,
            process=self._process_metrics,
        )
        with _listening("HTTP", self._config.http.listen, "http.listen"):
            await service.start()
        self._http = service

    async def _start_peer(self) -> None:
        config = self._config.peer
        if config.listen is None or config.key_file is None:
            return
        service = PeerServer(config, self._read_key(config.key_file), runtime=self._runtime, log=self._log)
        with _listening("other brokers", config.listen, "peer.listen"):
            await service.start()
        self._peer = service
        self._sources.append(lambda: peer_metrics(service.metrics))

    async def _start_broker(self) -> Broker:
        config = self._config.broker
        try:
            return await Broker.start(
                config,
                runtime=self._runtime,
                log=self._log,
                open_disk=self._open_disk,
                peers=self._peer or NoPeers(),
                listeners=self._listeners(),
                founds=self._peer is None,
            )
        except OSError as error:
            where = config.data_dir.absolute()
            reason = error.strerror or error
            raise StartError(f"cannot use the data directory {where}: {reason}; --data chooses another") from error

    def _listeners(self) -> dict[str, tuple[str, int]]:
        """The client addresses to give to other brokers. Raises StartError if there is none that can be given."""
        address = advertised_address(self._config.kafka)
        if address[1] == 0 and self._peer is not None:
            raise StartError(
                "kafka.listen has port 0, which is known only after the start: a broker of a cluster needs a fixed one"
            )
        return {KAFKA_LISTENER: address} if address[1] else {}

    async def _start_kafka(self, broker: Broker) -> tuple[str, int]:
        service = KafkaServer(broker, self._config.kafka, self._log)
        with _listening("Kafka", self._config.kafka.listen, "kafka.listen"):
            address = await service.start()
        self._kafka = service
        self._sources.append(lambda: kafka_metrics(service.metrics, broker.quotas))
        self._sources.append(lambda: self._limit_metrics(broker, service))
        return address

    def _start_nats(self, broker: Broker) -> None:
        if not self._config.nats.servers:
            return
        service = NatsFrontEnd(broker, self._config.nats, self._log)
        service.start()
        self._nats = service
        self._sources.append(lambda: nats_metrics(service.metrics))

    def _limit_metrics(self, broker: Broker, kafka: KafkaServer) -> Iterable[Metric]:
        usages = [*broker_limits(broker), *kafka.limits()]
        hits = {**broker_limit_hits(broker), **kafka.limit_hits()}
        for service in (self._http, self._peer, self._nats):
            if service is not None:
                usages += service.limits()
                hits |= service.limit_hits()
        return limit_metrics(usages, hits)

    def _not_ready(self) -> str | None:
        if self._phase is not None or self.broker is None:
            return self._phase
        return self.broker.health.unready_reason()

    def note_slow_consumer(self, line: str) -> None:
        """The nats-server of this process has cut off a client that did not read; `line` is what it says of that."""
        if self.broker is not None:
            self.broker.advisories.note("nats.server.slow_consumer", message=line)

    async def expelled(self) -> LogboomError:
        """Return once the cluster has expelled this process, with the reason. After the start."""
        assert self.broker is not None
        return await asyncio.shield(self.broker.expelled)

    async def stop(self) -> None:
        """Accept no connections, answer accepted requests, flush, close."""
        self._phase = "stopping"
        if self.broker is not None:
            if not self.broker.expelled.done():
                await self.broker.leave()
            self.broker.groups.resign()
        if self._nats is not None:
            await self._nats.stop(ANSWER_GRACE_S)
        if self._kafka is not None:
            await self._kafka.stop(ANSWER_GRACE_S)
        self._sources.clear()
        if self.broker is not None:
            await self.broker.stop()
        if self._peer is not None:
            await self._peer.stop()
        if self._http is not None:
            await self._http.stop()
        self._kafka = self._nats = self.broker = self._peer = self._http = None


@contextlib.contextmanager
def _listening(service: str, address: str, setting: str) -> Any:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        todo = f"choose another with {setting}"
        if error.errno == errno.EADDRINUSE:
            todo = f"stop the program that listens there, perhaps another broker, or {todo}"
        raise StartError(f"cannot listen on {address} for {service}: {reason}; {todo}") from error
