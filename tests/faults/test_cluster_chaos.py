"""Real brokers, real clients, and a nemesis that combines everything at random, drawn from a seed that is printed.

`LOGBOOM_CHAOS_SEED` has the same faults again (what they meet is never the same), `LOGBOOM_CHAOS_ROUNDS` more of them.
With the folder of another program in `LOGBOOM_CHAOS_OTHER_BUILD` (its `src`), half of the processes are of that one.

Clients are librdkafka's idempotent producer and a group, aiokafka's or Java's, a publisher of NATS that waits for acks,
and an operator. After each round all go on; at the end nothing that was acked is lost or doubled, no committed offset
has gone back, nobody hangs, and all replicas hold the same bytes.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom

import pytest
from tests.faults import foreign_load
from tests.faults.chaos import CLIENTS, BrokerProcesses, Nemesis, file_systems, places, say, set_build
from tests.faults.chaos_clients import NatsLoad, Operator
from tests.faults.cluster_load import OFFSETS, ClusterLoad, go_on
from tests.faults.cut_network import CutNetwork
from tests.faults.foreign_load import ForeignLoad
from tests.nats.servers import NatsServer, needs_nats_server
from tests.support.brokers import ClusterBrokers
from tests.support.commands import run_logboom
from tests.support.waiting import WAIT_S

pytestmark = [pytest.mark.slow, needs_nats_server]

ROUNDS = int(os.environ.get("LOGBOOM_CHAOS_ROUNDS", "2"))
SEED = int(os.environ.get("LOGBOOM_CHAOS_SEED", "0"))
OTHER_BUILD = os.environ.get("LOGBOOM_CHAOS_OTHER_BUILD", "")
ROUND_S = 30
STREAMS = ("orders", "books", "news")
RECORD_BYTES, FILLING_BYTES = 200, 20_000
RESIDENT_BYTES_MAX = 300 << 20
HANDLES_MAX = 500


@dataclass
class Clients:
    """All that work on the cluster."""

    load: ClusterLoad
    foreign: ForeignLoad
    news: NatsLoad

    def go_on(self) -> None:
        """Return once each of them was served."""
        go_on(self.load)
        go_on(self.foreign)
        self.news.go_on()

    def on_full(self, is_full: bool) -> None:
        """Records are so large that a full file system is felt."""
        self.load.record_bytes = FILLING_BYTES if is_full else RECORD_BYTES


@contextmanager
def clients_of(
    cluster: ClusterBrokers, directory: Path, nats_server: NatsServer, foreign: foreign_load.Commands
) -> Iterator[Clients]:
    """Clients at work, whose histories are checked at the end."""
    for stream in ("orders", "books"):
        cluster.create(stream, partitions=3, min_insync_replicas="2")
    window_ms = str(24 * 3_600_000)  # longer than clocks jump
    settings = {"logboom_nats_subjects": "news.>", "logboom_nats_duplicate_window_ms": window_ms}
    cluster.create("news", 1, 3, min_insync_replicas="2", **settings)
    load = ClusterLoad(cluster.bootstrap, "orders", 3, pause_s=0.005)
    other = ForeignLoad(foreign, directory, cluster.bootstrap, "books", 3)
    with NatsLoad(nats_server.url, "news") as news:
        with load, other:
            clients = Clients(load, other, news)
            clients.go_on()
            yield clients
            settle(cluster, STREAMS)
        load.check()
        other.check()
    assert news.publisher is not None
    news.publisher.check(cluster.bootstrap, "news")


def settle(cluster: ClusterBrokers, streams: tuple[str, ...]) -> None:
    """Return once all replicas are in sync."""
    for stream in (*streams, OFFSETS):
        cluster.wait_in_sync(stream)


def check_use(cluster: ClusterBrokers) -> None:
    """No process has grown in the trouble."""
    for number, broker in cluster.brokers.items():
        process = Path(f"/proc/{broker.pid}")
        resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        handles = len(list((process / "fd").iterdir()))
        assert resident < RESIDENT_BYTES_MAX, f"broker {number} has {resident >> 20} MiB in memory"
        assert handles < HANDLES_MAX, f"broker {number} has {handles} open files"


def check_copies(cluster: ClusterBrokers, streams: list[str]) -> None:
    """After they were stopped in order, all replicas are the same bytes, and nothing is damaged."""
    settle(cluster, tuple(streams))
    held = {(name, index): one.replicas for name in streams for index, one in cluster.partitions(name).items()}
    for broker in cluster.brokers.values():
        assert broker.sigterm() == 0
    for (name, index), replicas in held.items():
        copies = {
            b"".join(log.read_bytes() for log in sorted(directory.glob("*.log")))
            for directory in (cluster[number].data / "streams" / f"{name}-{index}" for number in replicas)
        }
        assert len(copies) == 1, f"copies of {name}-{index} on {replicas} differ: {[len(copy) for copy in copies]}"
    for broker in cluster.brokers.values():
        done = run_logboom(["log", "verify", str(broker.data)], timeout_s=WAIT_S)
        assert done.returncode == 0, done.stdout.decode()


def check_logs(cluster: ClusterBrokers) -> None:
    """Nothing is an error but what a full file system is."""
    for number, broker in cluster.brokers.items():
        for line in broker.log_text().splitlines():
            is_bad = any(word in line for word in ("Traceback", "damage", '"level": "error"', '"level": "critical"'))
            assert not is_bad or "disk is full" in line, f"broker {number}: {line[:2_000]}"


@pytest.mark.timeout(900 + 300 * ROUNDS)
@pytest.mark.parametrize("count", [3, 5])
def test_everything_at_once(tmp_path: Path, count: int) -> None:
    seed = SEED or SystemRandom().randrange(1, 1 << 31)
    say(f"LOGBOOM_CHAOS_SEED={seed}")
    chance, numbers = Random(seed), range(1, count + 1)

    def on_start(number: int) -> None:
        if OTHER_BUILD:
            set_build(tmp_path, number, builds.choice(("", OTHER_BUILD)))

    builds, foreign = Random(seed), chance.choice((foreign_load.aiokafka, foreign_load.java))
    with ExitStack() as made:
        network = made.enter_context(CutNetwork(numbers))
        disks = made.enter_context(file_systems(tmp_path, chance.sample(numbers, chance.randrange(count + 1))))
        nats_server = made.enter_context(NatsServer(tmp_path, host=network.host(CLIENTS)))
        settings = (
            "broker.replica_lag_max_ms=5000",
            "broker.auto_create_streams=false",  # a client that asks late would make a deleted stream again
            f"broker.voters={count}",
            f"nats.servers={nats_server.url}",
        )
        where = places(tmp_path, network, disks)
        cluster = made.enter_context(ClusterBrokers(tmp_path, *settings, count=count, places=where))
        with clients_of(cluster, tmp_path, nats_server, foreign) as clients:
            processes = BrokerProcesses(cluster, on_start)
            nemesis = Nemesis(processes, tmp_path, network, disks, chance, clients.on_full)
            with Operator(cluster, "orders", Random(seed)) as operator:
                for number in range(ROUNDS):
                    if number and chance.random() < 0.5:
                        processes.wipe(chance.choice(numbers[1:]))
                    nemesis.round(ROUND_S * chance.uniform(0.5, 1.5), at_once=chance.choice((1, 2, 3, 4)))
                    clients.go_on()
                    say(f"after round {number} all go on")
                    settle(cluster, ("books", "news"))
            say(f"faults: {dict(nemesis.counts)}; operator: {dict(operator.done)}")
        check_use(cluster)
        operator.check()
        check_copies(cluster, [*STREAMS, *operator.streams])
        check_logs(cluster)
