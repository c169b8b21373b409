"""Real servers of NATS for tests, streams that are attached to them, and what those hold."""

import asyncio
import contextlib
import functools
import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Self

import nats.errors
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from nats.aio.client import Client
from tests.support.server import free_port
from tests.support.waiting import WAIT_S

from logboom.app.supervisor.nats_server import NatsServerError, find_nats_server


def program() -> str | None:
    """Where nats-server is, if it is here."""
    try:
        return find_nats_server()
    except NatsServerError:
        return None


_LEAVES_SLOWLY = 'lame_duck_grace_period: "100s"'
"""A busy machine's brokers may not be through with a move within the ten seconds that are the default."""

_ASKED_AGAIN_S = WAIT_S / 10
"""A request gets no answer where the broker that took it was not certain any more to lead."""

needs_nats_server = pytest.mark.skipif(program() is None, reason="no nats-server here: apt-get install nats-server")


class NatsServer:
    """A nats-server of its own on a port that it keeps."""

    def __init__(self, directory: Path, *lines: str, host: str = "127.0.0.1") -> None:
        """`lines`: of its configuration."""
        self.host = host
        self.port = free_port()
        self.address = f"{host}:{self.port}"
        self.url = f"nats://{self.address}"
        self._monitor = f"127.0.0.1:{free_port()}"
        self._config = directory / f"nats-{self.port}.conf"
        listen = (f'listen: "{self.address}"', f'http: "{self._monitor}"')
        self._config.write_text("\n".join([*listen, *lines]) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it; returns once it answers, as a client's first attempt to connect is its only one."""
        found = program()
        assert found is not None
        with self._config.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen([found, "-c", str(self._config)], stdout=log, stderr=log)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                socket.create_connection((self.host, self.port), timeout=WAIT_S).close()
            except OSError:
                assert time.monotonic() < deadline, "nats-server does not answer"
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)
            self._process = None

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def leave(self) -> None:
        """Lame duck mode, as by `nats-server --signal ldm`: it takes no new clients, tells those that it has, and ends
        their connections later."""
        self._signal(signal.SIGUSR2)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def brokers(self) -> set[int]:
        """The numbers of the brokers that are connected to it."""
        names = [str(one.get("name", "")) for one in self._monitored("connz")["connections"]]
        return {int(name.removeprefix("logboom-")) for name in names if name.startswith("logboom-")}

    def others(self) -> list[str]:
        """The addresses of the others of its cluster, as it tells them to clients."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S) as client:
            greeting = client.makefile("rb").readline()
        found: list[str] = json.loads(greeting.removeprefix(b"INFO ")).get("connect_urls", [])
        return [one for one in found if one != self.address]

    def _monitored(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self._monitor}/{what}", timeout=WAIT_S) as reply:
            told: dict[str, Any] = json.load(reply)
        return told


@contextlib.contextmanager
def nats_cluster(
    directory: Path, *lines: str, ports: Sequence[int] = (), reached_at: Sequence[int] = ()
) -> Iterator[tuple[NatsServer, ...]]:
    """Servers of one cluster, two if `ports` names no others; each tells its clients of the others. `ports`: where they
    listen for each other; `reached_at`: where they find each other, if not there. `lines`: of the configuration of
    each."""
    ports = ports or (free_port(), free_port())
    reached_at = reached_at or ports
    routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in reached_at)
    with contextlib.ExitStack() as running:
        yield tuple(
            running.enter_context(
                NatsServer(
                    directory,
                    f'cluster {{ name: "one", listen: "127.0.0.1:{port}", advertise: "127.0.0.1:{at}", '
                    f"routes: [{routes}] }}",
                    _LEAVES_SLOWLY,
                    *lines,
                )
            )
            for port, at in zip(ports, reached_at, strict=True)
        )


class Stored(NamedTuple):
    """A record as Kafka's consumers see it."""

    offset: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]

    def header(self, name: str) -> list[bytes]:
        """All values of a header."""
        return [value for each, value in self.headers if each == name]


def attach(bootstrap: str, stream: str, *subjects: str, partitions: int = 1, replicas: int = 1, **also: str) -> None:
    """Create a stream with subjects; `ack` is its setting `logboom.nats.ack`, and so on."""
    given = {f"logboom.nats.{name}": value for name, value in also.items()}
    given["logboom.nats.subjects"] = ",".join(subjects)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(stream, partitions, replicas, config=given)])[stream].result(WAIT_S)


def alter(bootstrap: str, stream: str, name: str, value: str) -> None:
    """Change one setting of a stream, and no other."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, stream, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    next(iter(admin.incremental_alter_configs([resource]).values())).result(WAIT_S)


def grow(bootstrap: str, stream: str, partitions: int) -> None:
    """Let a stream have so many partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its futures end with it
    admin.create_partitions([NewPartitions(stream, partitions)])[stream].result(WAIT_S)


def delete(bootstrap: str, stream: str) -> None:
    """Delete a stream."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its futures end with it
    admin.delete_topics([stream])[stream].result(WAIT_S)


def stored(bootstrap: str, stream: str, count: int, partition: int = 0) -> list[Stored]:
    """The first `count` records of a partition; waits until there are so many."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    found: list[Stored] = []
    try:
        consumer.assign([TopicPartition(stream, partition, 0)])
        deadline = time.monotonic() + WAIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} records of {count}"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                headers = [(str(name), bytes(value)) for name, value in _headers(message)]
                found.append(Stored(message.offset() or 0, message.key(), message.value() or b"", headers))
    finally:
        consumer.close()
    return found


def _headers(message: Message) -> list[tuple[Any, Any]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def end(bootstrap: str, stream: str, partition: int = 0) -> int:
    """Behind which offset a partition ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(stream, partition), timeout=WAIT_S)[1])
    finally:
        consumer.close()


def metrics(address: str) -> str:
    """What `/metrics` says."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as reply:
        return str(reply.read(), "utf-8")


P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The test as pytest calls it."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def taken(client: Client, subject: str) -> None:
    """Return once somebody takes messages of a subject: a stream is attached a moment after it was created."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await client.request(subject, b"probe", timeout=_ASKED_AGAIN_S, headers={"Logboom-Ack": "leader"})
            except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
                await asyncio.sleep(0.02)
            else:
                return


async def published(client: Client, subject: str, payload: bytes, **headers: str) -> dict[str, Any]:
    """The answer to a message, as it is written."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await client.request(subject, payload, timeout=WAIT_S, headers=names or None)
    told: dict[str, Any] = json.loads(answer.data)
    return told
