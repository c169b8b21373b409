"""librdkafka, idempotent and with several requests on their way, of which a broker refuses only the first for a moment.

Two in-sync replicas are asked for and one is there, until the first of several batches has been refused; then one
will do, and the others come. A proxy sees to when each passes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.faults.cluster_load import read_all
from tests.support.brokers import ClusterBrokers
from tests.support.produce_gate import ProduceGate
from tests.support.waiting import WAIT_S, until

REFUSED, OTHER = "refused", "other"
_NOT_ENOUGH_REPLICAS = 19


@dataclass
class Client:
    """An idempotent producer that sends each record at once, in a request of its own."""

    gate: ProduceGate
    errors: list[str] = field(default_factory=list)
    acked: int = 0

    def __post_init__(self) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": self.gate.address,
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "message.timeout.ms": 1_000 * WAIT_S,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def send(self, stream: str, number: int) -> None:
        self.producer.produce(stream, str(number), partition=0, on_delivery=self._delivered)
        self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(WAIT_S) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked += 1
        else:
            self.errors.append(f"{message.value()!r}: {error}")


@dataclass
class Bench:
    """A leader whose follower is down, behind a gate; and a client."""

    cluster: ClusterBrokers
    gate: ProduceGate
    client: Client

    def ask_for_in_sync(self, replicas: int) -> None:
        """`min.insync.replicas` of the one stream: 2 are refused for want of the follower."""
        admin = AdminClient({"bootstrap.servers": self.gate.address, "log_level": 0})
        entry = ConfigEntry("min.insync.replicas", str(replicas), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, REFUSED, incremental_configs=[entry])
        admin.incremental_alter_configs([resource], request_timeout=WAIT_S)[resource].result(WAIT_S)

    def stored(self, stream: str) -> list[int]:
        """The numbers of all records, in their order."""
        records = read_all(self.gate.address, stream, 1)[0]
        return [records[offset] for offset in sorted(records)]


def _leader_is_alone(cluster: ClusterBrokers, stream: str) -> bool:
    return cluster.partitions(stream)[0].isrs == [1]


@contextmanager
def bench_in(directory: Path) -> Iterator[Bench]:
    with ProduceGate(lambda: cluster[1].kafka) as gate:
        first = f"kafka.advertised={gate.address}"
        cluster = ClusterBrokers(directory, "broker.voters=1", count=2, lease_ms=2_000, own_settings={1: first})
        with cluster:
            for stream in (REFUSED, OTHER):
                cluster.create(stream, replicas=2, min_insync_replicas="1")
            cluster[2].kill9()
            for stream in (REFUSED, OTHER):
                until(partial(_leader_is_alone, cluster, stream), f"the leader of {stream} is alone", every_s=0.1)
            yield Bench(cluster, gate, Client(gate))


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False], ids=["a known producer", "a new producer"])
def test_what_was_sent_behind_a_batch_that_was_refused_for_a_moment_is_stored_once_in_order(
    tmp_path: Path, known: bool
) -> None:
    """Nor is anything doubled that another stream has stored, and of which the client has no answer: told that a
    sequence is out of order, librdkafka sends it again in a new epoch, and its first record lies behind its last then.

    Of a new producer the second batch would be taken, which librdkafka takes for an ack of the first."""
    with bench_in(tmp_path) as bench:
        gate, client = bench.gate, bench.client
        client.send(OTHER, 0)
        if known:
            client.send(REFUSED, 0)
        client.flush()
        bench.ask_for_in_sync(2)
        gate.close()
        client.send(REFUSED, 1)
        assert gate.answered(gate.arrived(1)) == (_NOT_ENOUGH_REPLICAS,)
        for count, (stream, number) in enumerate([(REFUSED, 2), (OTHER, 1), (OTHER, 2)], 2):
            client.send(stream, number)
            gate.arrived(count)
        bench.ask_for_in_sync(1)
        for passage in gate.passages[:2]:
            passage.may_return.set()
        codes = [gate.answered(passage) for passage in gate.passages[:4]]
        print("answers:", codes)
        assert codes[-2:] == [(0,), (0,)], "these are stored"
        gate.cut()
        gate.open()
        client.flush()
        assert client.errors == []
        assert bench.stored(REFUSED) == [*([0] if known else []), 1, 2]
        assert bench.stored(OTHER) == [0, 1, 2]
