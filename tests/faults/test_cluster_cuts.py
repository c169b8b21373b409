"""A real cluster of three, each broker in a network namespace of its own, under load; connections between them are cut.

Clients reach every broker at all times. Packets that a cut concerns vanish; no connection is closed by it. Needs the
right to make network namespaces.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.cluster_load import OFFSETS, STREAM, go_on, timed, under_load
from tests.support.brokers import Place

NUMBERS = (1, 2, 3)


class Network:
    """A bridge, and a namespace for each broker; this process is on the bridge too."""

    def __init__(self) -> None:
        self._name = f"lb{os.getpid()}"
        self._net = f"10.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}"

    def __enter__(self) -> "Network":
        try:
            self._ip("link", "add", self._name, "type", "bridge")
            self._ip("address", "add", f"{self._net}.254/24", "dev", self._name)
            self._ip("link", "set", self._name, "up")
            for number in NUMBERS:
                name, cable = f"{self._name}-{number}", f"{self._name}v{number}"
                self._ip("netns", "add", name)
                self._ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
                self._ip("link", "set", cable, "master", self._name, "up")
                self._ip("-n", name, "address", "add", f"{self.host(number)}/24", "dev", "eth0")
                self._ip("-n", name, "link", "set", "lo", "up")
                self._ip("-n", name, "link", "set", "eth0", "up")
        except subprocess.CalledProcessError as error:
            self.__exit__()
            pytest.skip(f"no network namespaces can be made: {error.stderr.decode().strip()}")
        return self

    def __exit__(self, *error: object) -> None:
        for number in NUMBERS:
            with contextlib.suppress(subprocess.CalledProcessError):
                self._ip("netns", "delete", f"{self._name}-{number}")
        with contextlib.suppress(subprocess.CalledProcessError):
            self._ip("link", "delete", self._name)

    def host(self, number: int) -> str:
        """The address of a broker."""
        return f"{self._net}.{number}"

    def places(self) -> dict[int, Place]:
        """Each broker in its namespace."""
        return {
            number: Place(self.host(number), ("ip", "netns", "exec", f"{self._name}-{number}")) for number in NUMBERS
        }

    @contextlib.contextmanager
    def cut(self, *ways: tuple[int, int]) -> Iterator[None]:
        """What one broker sends to another one vanishes, for each of these pairs."""
        for sender, receiver in ways:
            self._ip("-n", f"{self._name}-{sender}", "route", "add", "blackhole", f"{self.host(receiver)}/32")
        try:
            yield
        finally:
            for sender, receiver in ways:
                self._ip("-n", f"{self._name}-{sender}", "route", "delete", "blackhole", f"{self.host(receiver)}/32")

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


def both_ways(one: int, other: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (one, other), (other, one)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cuts_between_brokers(tmp_path: Path, network: Network) -> None:
    """Every cut leaves two brokers that hear each other, and these serve every partition."""
    with under_load(tmp_path, lease_ms=2_000, places=network.places()) as (cluster, load):
        leader = cluster.leader(STREAM, 0)
        controller = cluster.controller()
        cuts = {
            f"{leader} from all": [*both_ways(leader, leader % 3 + 1), *both_ways(leader, (leader + 1) % 3 + 1)],
            f"the controller {controller} from one": both_ways(controller, controller % 3 + 1),
            "two that are not the controller": both_ways(*(n for n in NUMBERS if n != controller)),
        }
        for what, ways in cuts.items():
            with timed(f"cut: {what}", load):
                with network.cut(*ways):
                    go_on(load)
                    time.sleep(6)  # longer than leases and elections
                    go_on(load)
                go_on(load)
                cluster.wait_in_sync(STREAM)
                cluster.wait_in_sync(OFFSETS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_way_cuts(tmp_path: Path, network: Network) -> None:
    with under_load(tmp_path, lease_ms=2_000, places=network.places()) as (cluster, load):
        for sender in NUMBERS:
            for receiver in NUMBERS:
                if sender != receiver:
                    what = f"what {sender} says to {receiver} vanishes; controller {cluster.controller()}"
                    with timed(what, load):
                        with network.cut((sender, receiver)):
                            go_on(load)
                            time.sleep(4)
                            go_on(load)
                        cluster.wait_in_sync(STREAM)
                        cluster.wait_in_sync(OFFSETS)
