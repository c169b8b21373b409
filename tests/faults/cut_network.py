"""A network namespace for each broker of a test, and a router between them that drops what a cut concerns.

Packets vanish on their way, as in a broken switch: their sender is not told, and no connection is closed. Clients, on
this side of the router, reach every broker at all times. Needs the right to make network namespaces.
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from typing import Self

import pytest
from tests.support.brokers import Place
from tests.support.waiting import WAIT_S

Way = tuple[int, int]
"""Who sends, and to whom."""


def both_ways(one: int, other: int) -> tuple[Way, Way]:
    """All that two brokers say to each other."""
    return (one, other), (other, one)


class CutNetwork:
    """Brokers 1, 2, ..., each on a cable of its own to the router; number 0 is this side of it."""

    _made = itertools.count()

    def __init__(self, numbers: Sequence[int]) -> None:
        # The system takes a namespace apart some time after it was deleted: the next one has other names.
        self._name = f"lb{os.getpid()}{'abcdefghij'[next(self._made) % 10]}"
        self._router = f"{self._name}-0"
        self._net = f"10.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}"
        self._numbers = tuple(numbers)

    def __enter__(self) -> Self:
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            pytest.skip(f"no network namespaces can be made: {error.stderr.decode().strip()}")
        return self

    def _make(self) -> None:
        self._ip("netns", "add", self._router)
        self._ip("netns", "exec", self._router, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        self._plug(0)
        self._ip("route", "add", f"{self._net}.0/24", "via", self._gate(0))
        for number in self._numbers:
            self._ip("netns", "add", f"{self._name}-{number}")
            self._plug(number)
            self._ip("-n", f"{self._name}-{number}", "route", "add", "default", "via", self._gate(number))

    def _plug(self, number: int) -> None:
        """The cable between a namespace, or this side, and the router."""
        here, there = ("-n", f"{self._name}-{number}") if number else (), ("-n", self._router)
        end, far_end = f"{self._name}v{number}", f"{self._name}r{number}"
        self._ip("link", "add", end, "type", "veth", "peer", "name", far_end, "netns", self._router)
        if number:
            self._ip("link", "set", end, "netns", f"{self._name}-{number}")
            self._ip(*here, "link", "set", "lo", "up")
        for where, device, address in ((here, end, self.host(number)), (there, far_end, self._gate(number))):
            self._ip(*where, "address", "add", f"{address}/30", "dev", device)
            self._ip(*where, "link", "set", device, "up")

    def __exit__(self, *error: object) -> None:
        # Both ends of a cable go with one of them, at once; with their namespace they would go some time later.
        cables = (("-n", self._router, "link", "delete", f"{self._name}r{number}") for number in (0, *self._numbers))
        spaces = (("netns", "delete", f"{self._name}-{number}") for number in (0, *self._numbers))
        for what in (*cables, *spaces):
            with contextlib.suppress(subprocess.CalledProcessError):
                self._ip(*what)

    def host(self, number: int) -> str:
        """The address of a broker."""
        return f"{self._net}.{4 * number + 2}"

    def _gate(self, number: int) -> str:
        return f"{self._net}.{4 * number + 1}"

    def places(self) -> dict[int, Place]:
        """Each broker in its namespace."""
        return {
            number: Place(self.host(number), ("ip", "netns", "exec", f"{self._name}-{number}"))
            for number in self._numbers
        }

    @contextlib.contextmanager
    def cut(self, *ways: Way) -> Iterator[None]:
        """What one broker sends to another one vanishes, for each of these pairs."""
        rules = [("from", self.host(one), "to", self.host(other), "blackhole") for one, other in ways]
        for rule in rules:
            self._ip("-n", self._router, "rule", "add", *rule)
        try:
            yield
        finally:
            for rule in rules:
                self._ip("-n", self._router, "rule", "delete", *rule)

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=WAIT_S)
