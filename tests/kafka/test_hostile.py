"""A whole broker in a process of its own, fed with requests that are random, cut or changed, at every API and version.

kio's own reader ends the process on such input; here every one must be answered or its connection closed, in bounded
time and memory, with the broker alive at the end and its log without a word of an error of its own.
"""

import random
import socket
import struct
from pathlib import Path

import pytest
from kio.index import load_request_schema
from kio.schema.fetch.v12.request import FetchRequest
from tests.kafka.door import frame, written
from tests.kafka.entities import broken, random_entity
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.kafka.apis import load_handlers

TIMEOUT_S = WAIT_S
WAITS_S = 0.02
PER_VERSION = 12
SEEDS = (1, 2)
# JoinGroup and SyncGroup may wait for other members as long as they ask to; nobody waits for them here.
MAY_WAIT = (11, 14)
PEAK_BYTES_MAX = 600 << 20

LIMITS = {
    "LOGBOOM_KAFKA__MAX_FETCH_WAIT_MS": "20",
    "LOGBOOM_BROKER__MAX_PARTITIONS": "40",
}


class Attacker:
    """One connection after another; every hostile frame is followed by a question anybody must answer."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._address = host, int(port)
        self._socket: socket.socket | None = None
        self.answered = 0
        self.closed = 0
        self.left = 0

    def strike(self, api_key: int, version: int, body: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, TIMEOUT_S)
        self._socket.settimeout(WAITS_S if api_key in MAY_WAIT else TIMEOUT_S)
        try:
            self._socket.sendall(frame(api_key, version, 1, body) + frame(18, 0, 77, b""))
            while self._correlation() != 77:
                pass
            self.answered += 1
        except TimeoutError:
            assert api_key in MAY_WAIT, f"no answer to {api_key} v{version} {body.hex()}"
            self.left += 1
            self.end()
        except ConnectionError:
            self.closed += 1
            self.end()

    def end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _correlation(self) -> int:
        (size,) = struct.unpack(">i", self._exactly(4))
        number: int = struct.unpack_from(">i", self._exactly(size))[0]
        return number

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            got = self._socket.recv(min(size - len(data), 1 << 20))
            if not got:
                raise ConnectionResetError
            data += got
        return data


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def served() -> list[tuple[int, int]]:
    return [
        (api.api_key, version)
        for api in load_handlers().values()
        for version in range(api.first_advertised, api.max_version + 1)
    ]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_comes_the_broker_lives(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with BrokerProcess(tmp_path / "data", environment=LIMITS) as broker:
        attacker = Attacker(broker.kafka)
        for api_key, version in served():
            cls = load_request_schema(api_key, max(version, 3) if api_key == 0 else version)
            for number in range(PER_VERSION):
                body = written(random_entity(cls, chance))
                attacker.strike(api_key, version, broken(body, chance) if number % 4 else body)
                assert broker.running, f"seed {seed}: {api_key} v{version} {body.hex()}"
        attacker.end()
        print(f"answered {attacker.answered}, closed {attacker.closed}, left {attacker.left}")
        assert attacker.answered > 100
        assert attacker.closed > 100
        assert peak_bytes(broker.pid) < PEAK_BYTES_MAX
        broker.sigterm()
        assert "a request failed" not in broker.log_text()
        broker.start()  # and what it wrote can be read again


def test_the_bodies_that_end_a_process_with_kios_reader(tmp_path: Path) -> None:
    """Twenty thousand random bodies for Fetch version 12: kio 0.6.5 aborts within a second of them."""
    chance = random.Random(0)
    with BrokerProcess(tmp_path / "data", environment=LIMITS) as broker:
        attacker = Attacker(broker.kafka)
        assert FetchRequest.__version__ == 12
        for _ in range(2_000):
            attacker.strike(1, 12, chance.randbytes(chance.randrange(100)))
        attacker.end()
        assert broker.running
        assert attacker.closed > 1_000
        assert peak_bytes(broker.pid) < PEAK_BYTES_MAX


def test_noise_that_is_no_frame(tmp_path: Path) -> None:
    chance = random.Random(5)
    with BrokerProcess(tmp_path / "data", environment=LIMITS) as broker:
        host, port = broker.kafka.rsplit(":", 1)
        for _ in range(300):
            with socket.create_connection((host, int(port)), TIMEOUT_S) as stranger:
                stranger.sendall(chance.randbytes(chance.randrange(1, 3000)))
                stranger.shutdown(socket.SHUT_WR)
                while True:
                    try:
                        if not stranger.recv(1 << 16):
                            break
                    except ConnectionError:
                        break
        assert broker.running
        attacker = Attacker(broker.kafka)
        attacker.strike(18, 0, b"")
        assert attacker.answered == 1
        attacker.end()
