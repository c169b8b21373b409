"""Any bytes at the HTTP door of a broker: an answer or a closed connection, and the next scrape is served."""

import random
import re
import socket
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kafka.attack import peak_bytes
from tests.support.server import BrokerProcess
from tests.support.waiting import until

from logboom.base.units import MIB

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n"
PIECES = (
    b"\r\n",
    b"\0",
    b" ",
    b":",
    b"\xff",
    b"HTTP/9.9",
    b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n",
)
METHODS = (b"GET", b"HEAD", b"POST", b"OPTIONS", b"PRI", b"get", b"")
PATHS = (b"/metrics", b"/healthz", b"/readyz", b"/", b"//", b"/../../etc/passwd", b"*", b"/\xff\0", b"/" * 9_000)


def asked(address: str, data: bytes) -> bytes:
    """All that comes back."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 60) as peer:
        received = b""
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while chunk := peer.recv(1 << 16):
                received += chunk
        except OSError:
            pass  # it has closed before all was sent
        return received


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request that is nearly one."""
    line = b" ".join((draw(st.sampled_from(METHODS)), draw(st.sampled_from(PATHS)), b"HTTP/1.1"))
    headers = draw(st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=6))
    data = bytearray(line + b"\r\n" + b"".join(headers) + b"\r\n\r\n")
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data[place:place] = draw(st.sampled_from(PIECES) | st.binary(max_size=8))
    return bytes(data)


def test_any_bytes_are_answered_or_closed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(requests() | st.binary(max_size=200))
        def strike(data: bytes) -> None:
            answer = asked(broker.http, data)
            assert b"Traceback" not in answer
            assert re.fullmatch(rb"|HTTP/1\.0 ([234]..|505) [\s\S]*", answer), answer[:200]

        strike()
        assert b"logboom_kafka_connections " in asked(broker.http, REQUEST)
        assert "Traceback" not in broker.log_text()


def test_many_slow_peers_are_closed_and_the_scrape_is_answered(tmp_path: Path) -> None:
    """Those above `http.max_connections` are closed at once, the others when their time is up."""
    limits = ("--set", "http.max_connections=4", "--set", "http.request_timeout_s=1")
    with BrokerProcess(tmp_path / "data", *limits) as broker:
        host, port = broker.http.rsplit(":", 1)
        chance, before = random.Random(3), peak_bytes(broker.pid)
        peers = []
        for _ in range(60):
            peer = socket.create_connection((host, int(port)), 60)
            peers.append(peer)
            try:
                peer.sendall(REQUEST[: chance.randrange(len(REQUEST) - 2)])
            except ConnectionError:
                continue
        for peer in peers:
            try:
                while peer.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
            peer.close()
        # On a busy machine its second may be over before this request is read, as theirs was.
        told = until(lambda: found if b"logboom_kafka_connections " in (found := asked(broker.http, REQUEST)) else b"")
        assert b'logboom_limit{limit="http.max_connections"} 4.0' in told
        assert b'logboom_limit_used{limit="http.max_connections"} ' in told
        (crossed,) = re.findall(rb'logboom_limit_crossed_total\{limit="http.max_connections"\} (.*)', told)
        assert 1 <= float(crossed) <= 56
        assert broker.log_text().count('"limit": "http.max_connections"') >= 1
        assert peak_bytes(broker.pid) - before < 32 * MIB
