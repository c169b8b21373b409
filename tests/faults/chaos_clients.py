"""Clients and an operator for `test_cluster_chaos`, beside those of `cluster_load` and `foreign_load`."""

import asyncio
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from nats.aio.client import Client
from tests.faults.cluster_load import read_all
from tests.nats.publisher import Publisher
from tests.nats.servers import taken
from tests.support.brokers import ClusterBrokers
from tests.support.commands import run_logboom
from tests.support.waiting import WAIT_S

import nats

REQUEST_S = 20
MADE_MAX = 6


class NatsLoad:
    """A publisher of NATS in a thread with a loop of its own. Life: `with`."""

    def __init__(self, url: str, subject: str) -> None:
        self._url, self._subject = url, subject
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self.publisher: Publisher | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WAIT_S), "no publisher of NATS"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._task is not None
        assert self.publisher is not None
        # Where something failed it would wait for acks that do not come.
        self._loop.call_soon_threadsafe(self.publisher.end if error is None else self._task.cancel)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the publisher of NATS does not end"

    def go_on(self) -> None:
        """Return once more was acked."""
        assert self.publisher is not None
        wanted, deadline = len(self.publisher.acked) + 20, time.monotonic() + WAIT_S
        while len(self.publisher.acked) < wanted:
            assert time.monotonic() < deadline, "no acks over NATS"
            time.sleep(0.02)

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._publish())

    async def _publish(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        client: Client
        async with await nats.connect(self._url, max_reconnect_attempts=-1, reconnect_time_wait=0.1) as client:
            await taken(client, f"{self._subject}.probe")
            self.publisher = Publisher(client, f"{self._subject}.x")
            self._ready.set()
            await self.publisher.run()


class Operator:
    """Changes the cluster while it is in trouble, and knows what it was told. Life: `with`; `check` is for afterwards.

    It makes streams, writes to them, grows and deletes them, changes settings, and moves replicas and leaders.
    """

    def __init__(self, cluster: ClusterBrokers, stream: str, chance: random.Random) -> None:
        """`stream`: one of which it moves replicas too, and which it leaves there."""
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        self._made: dict[str, dict[int, list[tuple[int, int]]]] = {}
        """Streams that are there for certain -> partition -> offset and value of what was acked."""
        self._deleted: set[str] = set()
        """Those that are certainly gone."""
        self._cluster = cluster
        self._stream = stream
        self._chance = chance
        self._drained: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(2 * WAIT_S)
        assert not self._thread.is_alive(), "the operator's command does not end"

    @property
    def streams(self) -> list[str]:
        """Those that it made and that are there."""
        return list(self._made)

    def check(self) -> None:
        """Streams are there that were made, with what was acked in them, and none is that was deleted."""
        assert self.problems == []
        there = set(self._admin().list_topics(timeout=WAIT_S).topics)
        assert set(self._made) <= there, f"{set(self._made) - there} were made, and are not there"
        assert not self._deleted & there, f"{self._deleted & there} were deleted"
        for name, acked in self._made.items():
            found = read_all(self._cluster.bootstrap, name, len(self._cluster.partitions(name)))
            for index, records in acked.items():
                for offset, value in records:
                    assert found[index].get(offset) == value, f"{name}-{index}/{offset}: {found[index].get(offset)}"
            values = [value for one in found.values() for value in one.values()]
            assert len(values) == len(set(values)), f"{name} has duplicates"

    def _run(self) -> None:
        kinds = (self._create, self._create, self._delete, self._grow, self._move, self._alter, self._balance)
        while not self._over.wait(self._chance.expovariate(1.0)):
            kind = self._chance.choice((*kinds, self._fill, self._fill))
            begun_s = time.monotonic()
            try:
                outcome = kind()
            except KafkaException as error:  # it may have been done or not
                outcome = f"{kind.__name__[1:]} refused"
                if error.args[0].code() == KafkaError.UNKNOWN:
                    self.problems.append(f"{kind.__name__}: {error}")
            except AssertionError as error:
                self.problems.append(str(error))
                return
            self.done[outcome] += 1
            if time.monotonic() - begun_s > WAIT_S / 2:
                self.problems.append(f"{outcome} took {time.monotonic() - begun_s:.0f} s")
        for number in self._drained:
            self._command("cluster", "drain", str(number), "--undo", must=True)
        self._command("cluster", "reassign", self._stream, "--cancel")

    def _admin(self) -> AdminClient:
        brokers = self._cluster.bootstrap
        return AdminClient({"bootstrap.servers": brokers, "log_level": 0, "socket.timeout.ms": 1_000 * REQUEST_S})

    def _command(self, *words: str, must: bool = False) -> bool:
        """Whether it was done; what is refused is refused with a sentence."""
        deadline = time.monotonic() + WAIT_S
        while True:
            done = run_logboom([*words, "--bootstrap", self._cluster.bootstrap], timeout_s=WAIT_S)
            assert b"Traceback" not in done.stderr, f"{words}: {done.stderr.decode()}"
            if not must or done.returncode == 0:
                return done.returncode == 0
            assert time.monotonic() < deadline, done.stderr.decode()

    def _create(self) -> str:
        if len(self._made) >= MADE_MAX:
            return self._delete()
        name = f"made-{sum(self.done.values())}"
        topic = NewTopic(name, self._chance.randint(1, 4), 3, config={"min.insync.replicas": "2"})
        admin = self._admin()  # its futures end with it
        admin.create_topics([topic], request_timeout=REQUEST_S)[name].result(2 * REQUEST_S)
        self._made[name] = {}
        return "create"

    def _delete(self) -> str:
        if len(self._made) < 3:
            return "nothing"
        name = self._chance.choice(self.streams)
        del self._made[name]  # from now on it may be there or not
        admin = self._admin()
        admin.delete_topics([name], request_timeout=REQUEST_S)[name].result(2 * REQUEST_S)
        self._deleted.add(name)
        return "delete"

    def _fill(self) -> str:
        if not self._made:
            return "nothing"
        name = self._chance.choice(self.streams)
        acked = self._made[name]

        def told(error: KafkaError | None, message: Message) -> None:
            index, offset, value = message.partition(), message.offset(), message.value()
            if error is None and index is not None and value is not None and offset is not None and offset >= 0:
                acked.setdefault(index, []).append((offset, int(value)))

        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 1_000 * REQUEST_S,
                "log_level": 0,
            }
        )
        for _ in range(20):
            producer.produce(name, b"%d" % self._chance.getrandbits(60), on_delivery=told)
        assert not producer.flush(2 * REQUEST_S), f"records of {name} are neither acked nor refused"
        return "fill"

    def _grow(self) -> str:
        if not self._made:
            return "nothing"
        name, admin = self._chance.choice(self.streams), self._admin()
        wanted = NewPartitions(name, len(admin.list_topics(name, timeout=REQUEST_S).topics[name].partitions) + 1)
        admin.create_partitions([wanted], request_timeout=REQUEST_S)[name].result(2 * REQUEST_S)
        return "grow"

    def _move(self) -> str:
        numbers = self._chance.sample(list(self._cluster.brokers), 3)
        name = self._chance.choice([self._stream, *self._made])
        words = ["cluster", "reassign", name, "--to", ",".join(map(str, numbers)), "--no-wait"]
        throttle = self._chance.choice(([], ["--throttle", "10MB"]))
        return "move" if self._command(*words, *throttle) else "move refused"

    def _alter(self) -> str:
        name = self._chance.choice([self._stream, *self._made])
        setting = self._chance.choice(("segment.bytes=1048576", "segment.bytes=16777216", "max.message.bytes=2000000"))
        return "alter" if self._command("streams", "alter", name, "--config", setting) else "alter refused"

    def _balance(self) -> str:
        number = self._chance.choice(list(self._cluster.brokers))
        words = self._chance.choice(
            (
                ("rebalance", "--no-wait"),
                ("rebalance", "--replicas", "--no-wait"),
                ("reassign", self._stream, "--cancel"),
                ("elect", self._stream, "0"),
                ("drain", str(number), "--no-wait"),
                ("drain", str(number), "--undo"),
                ("unthrottle",),
                ("status",),
            )
        )
        if words[0] == "drain":
            self._drained.add(number)
        return words[0] if self._command("cluster", *words) else f"{words[0]} refused"
