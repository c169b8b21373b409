"""Brokers of one cluster in processes of their own on 127.0.0.1, which tests kill, pause and start one by one."""

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess, free_port
from tests.support.waiting import WAIT_S

REQUEST_S = 5

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where a broker runs."""

    host: str = "127.0.0.1"
    within: tuple[str, ...] = ()
    """See BrokerProcess."""
    directory: Path | None = None
    """Where its data are, if not beside those of the others."""


class ClusterBrokers:
    """Brokers 1 to `count`; the first founds the cluster, the others join it. Broker n is `cluster[n]`.

        with ClusterBrokers(tmp_path) as cluster:
            cluster.create("orders", partitions=3)
            cluster[cluster.leader("orders", 0)].kill9()

    `settings` (KEY=VALUE) hold on every broker. A lease of 5 s outlives the pauses of a busy test machine.
    """

    def __init__(
        self,
        directory: Path,
        *settings: str,
        count: int = 3,
        lease_ms: int = 5_000,
        places: Mapping[int, Place] | None = None,
        own_settings: Mapping[int, str] | None = None,
    ) -> None:
        """`places`: where those brokers run that do not run beside the others; `own_settings`: one that a broker has
        for itself."""
        places = places or {}
        key = directory / "cluster.key"
        key.write_text(secrets.token_hex(32) + "\n")
        key.chmod(0o600)
        ports: set[int] = set()
        while len(ports) < count:
            ports.add(free_port())
        self.brokers: dict[int, BrokerProcess] = {}
        self._directory = directory
        self._settings = (f"peer.key_file={key}", f"broker.lease_ms={lease_ms}", *settings)
        self._own_settings = own_settings or {}
        self._peers: list[str] = []
        for number, port in enumerate(sorted(ports), 1):
            self._make(number, port, places.get(number, Place()))

    def _make(self, number: int, port: int, place: Place) -> None:
        peer = f"{place.host}:{port}"
        given = [*self._settings, f"peer.listen={peer}", f"broker.broker_id={number}"]
        if number in self._own_settings:
            given.append(self._own_settings[number])
        if self._peers:
            given.append("broker.join=" + ",".join(self._peers))
        self._peers.append(peer)
        self.brokers[number] = BrokerProcess(
            place.directory or self._directory / f"broker-{number}",
            *(word for setting in given for word in ("--set", setting)),
            log_path=self._directory / f"broker-{number}.log",
            host=place.host,
            within=place.within,
        )

    def __enter__(self) -> Self:
        try:
            found = ["cluster", "found", "--data", str(self.brokers[1].data), "--node-id", "1"]
            founded = run_logboom(found, timeout_s=WAIT_S)
            assert founded.returncode == 0, founded
            self.brokers[1].start()
            self.start(*(number for number in self.brokers if number != 1))
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
        for number, broker in self.brokers.items():
            if error is not None:
                print(f"broker {number}, {broker.log_path}, ends with:\n{broker.log_text()[-3_000:]}", file=sys.stderr)

    def __getitem__(self, number: int) -> BrokerProcess:
        return self.brokers[number]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, also of those that are down."""
        return ",".join(broker.kafka for broker in self.brokers.values())

    def add(self, number: int) -> None:
        """One more broker joins, wherever it finds one of the others."""
        self._make(number, free_port(), Place())
        self.brokers[number].start()

    def start(self, *numbers: int) -> None:
        """Start these side by side, and return once all are ready; the order of numbers says nothing."""
        with ThreadPoolExecutor(max(len(numbers), 1)) as threads:
            list(threads.map(lambda number: self.brokers[number].start(), numbers))

    def kill_all(self) -> None:
        """SIGKILL for all that run, all before the first is waited for."""
        running = [broker for broker in self.brokers.values() if broker.running]
        for broker in running:
            os.kill(broker.pid, signal.SIGKILL)
        for broker in running:
            broker.kill9()

    def create(self, stream: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
        """A stream, with all replicas in sync."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        topic = NewTopic(stream, partitions, replicas, config=settings)

        def made() -> bool:
            admin = self._admin()  # its futures end with it
            try:
                admin.create_topics([topic], request_timeout=WAIT_S)[stream].result(WAIT_S)
            except KafkaException as error:
                # librdkafka gives a request up when the broker that it was sent to is not in the metadata for a moment,
                # as one is that was fenced: the stream may be there.
                known = error.args[0].code()
                if known == KafkaError.TOPIC_ALREADY_EXISTS:
                    return True
                if known > 0:  # not of the client itself: the cluster has refused it
                    raise AssertionError(str(error)) from error
                raise
            return True

        self.wait_for(made, f"stream {stream}")
        self.wait_in_sync(stream)

    def partitions(self, stream: str) -> dict[int, PartitionMetadata]:
        """Leader, replicas and in-sync replicas of each partition, as some broker tells it."""
        return dict(self._admin().list_topics(stream, timeout=REQUEST_S).topics[stream].partitions)

    def leader(self, stream: str, index: int) -> int:
        """Who leads a partition; waits until somebody does."""
        return self.wait_for(lambda: self._leader(stream, index), f"leader of {stream}-{index}")

    def controller(self) -> int:
        """Who decides; waits until somebody does."""

        def found() -> int | None:
            admin = self._admin()  # its futures end with it
            controller = admin.describe_cluster(request_timeout=REQUEST_S).result(WAIT_S).controller
            return None if controller is None or controller.id < 1 else int(controller.id)

        return self.wait_for(found, "a controller")

    def wait_in_sync(self, stream: str) -> None:
        """Return once each partition has a leader and all of its replicas in sync."""

        def settled() -> bool:
            found = self.partitions(stream).values()
            return bool(found) and all(one.leader > 0 and len(one.isrs) == len(one.replicas) for one in found)

        self.wait_for(settled, f"all replicas of each partition of {stream} in sync")

    def wait_for(self, look: Callable[[], T | None], what: str) -> T:
        """The first true answer; while no broker answers, it is looked again."""
        deadline = time.monotonic() + WAIT_S
        found: T | None = None
        problem: KafkaException | None = None
        while time.monotonic() < deadline:
            try:
                found = look()
            except KafkaException as error:
                problem = error
            else:
                if found:
                    return found
            time.sleep(0.1)
        raise AssertionError(f"after {WAIT_S} s there is not: {what} (last: {found}, {problem})")

    def _leader(self, stream: str, index: int) -> int | None:
        number = self.partitions(stream)[index].leader
        return number if number > 0 else None

    def _admin(self) -> AdminClient:
        return AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 1_000 * REQUEST_S}
        )
