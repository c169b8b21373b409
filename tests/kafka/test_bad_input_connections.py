"""Connections of those who are no Kafka clients, or bad ones: closed with a reason, bounded; nobody else notices.

Where memory is measured, or a client is one of TLS or HTTP, the broker is a process of its own on real sockets; the
others are in simulated time.
"""

import http.client
import socket
import ssl
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.attack import Raw, answered, good, peak_bytes, unharmed, values_in
from tests.kafka.door import Running, frame, written
from tests.kafka.test_hot_apis import fetch_request, fetched
from tests.support.server import BrokerProcess
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.base.units import KIB, MIB
from logboom.kafka.apis import load_handlers

NO_REQUEST = "bytes that are not a Kafka request"
UNREADABLE = "request that cannot be read"
NOT_SERVED = "request that is not served"


def length(size: int) -> bytes:
    return struct.pack(">i", size) + b"\x05" * 20


FRAMES: dict[str, tuple[bytes, str, str]] = {
    "length -1": (length(-1), NO_REQUEST, "length of -1 bytes"),
    "the lowest length": (length(-(2**31)), NO_REQUEST, "length of -2147483648 bytes"),
    "length 0": (length(0), NO_REQUEST, "length of 0 bytes"),
    "shorter than a header": (length(7), NO_REQUEST, "length of 7 bytes"),
    "the highest length": (length(2**31 - 1), NO_REQUEST, "longer than the limit of 104857600"),
    "just above the limit": (length(100 * MIB + 1), NO_REQUEST, "longer than the limit of 104857600"),
    "an unknown API": (frame(999, 0, 1, b""), NOT_SERVED, "no such API"),
    "a negative API": (frame(-1, 0, 1, b""), NOT_SERVED, "no such API"),
    "a vote of Raft": (frame(52, 0, 1, b"\0\0"), NOT_SERVED, "no such API"),
    "a version of the future": (frame(3, 99, 1, b""), NOT_SERVED, "served are 0 to"),
    "a negative version": (frame(3, -1, 1, b""), NOT_SERVED, "served are 0 to"),
    "the highest version": (frame(1, 2**15 - 1, 1, b""), NOT_SERVED, "served are 4 to"),
    "two billion topics": (frame(3, 1, 1, b"\x7f\xff\xff\xff"), UNREADABLE, "count is beyond the end"),
    "four billion topics": (frame(3, 9, 1, b"\xff\xff\xff\xff\x0f"), UNREADABLE, "count is beyond the end"),
    "a count of -2": (frame(3, 1, 1, b"\xff\xff\xff\xfe"), UNREADABLE, "negative"),
    "a varint without an end": (frame(3, 9, 1, b"\xff" * 12), UNREADABLE, "32 bits"),
    "a string beyond the end": (frame(10, 0, 1, b"\x7f\xffabc"), UNREADABLE, "length is beyond the end"),
    "null where there is none": (frame(10, 0, 1, b"\xff\xff"), UNREADABLE, "null"),
    "no UTF-8": (frame(10, 0, 1, b"\0\x02\xc3\x28"), UNREADABLE, "UTF-8"),
    "nothing behind the header": (frame(1, 12, 1, b""), UNREADABLE, "too early"),
    "a client id beyond the end": (
        struct.pack(">ihhih", 12, 18, 0, 1, 500) + b"ab",
        UNREADABLE,
        "client id is beyond",
    ),
}


@pytest.mark.parametrize("known", [False, True], ids=["a stranger's", "a client's"])
def test_what_is_no_request_is_closed_with_a_reason(
    tmp_path: Path, warnings_logged: list[dict[str, Any]], *, known: bool
) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as other:
            for case, (data, event, why) in FRAMES.items():
                warnings_logged.clear()
                node.forget_warnings()
                async with node.client() as client:
                    if known:
                        await client.ask(18, 0)
                    client.writer.write(data)
                    assert await client.closed() == b"", case
                (line,) = warnings_logged
                assert (line["event"], line["client"]) == (event, "127.0.0.1"), case
                assert why in line["why"], case
                assert (await other.ask(18, 0)).error_code is ErrorCode.none

    run(body)


def test_every_api_with_a_count_it_does_not_have(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    """Bodies of nothing but high bytes, at every API and version: whatever the first count is, it is not believed."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node:
            for handler in load_handlers().values():
                for version in range(handler.min_version, handler.max_version + 1):
                    for filler in (b"\x7f", b"\xff", b"\x0f"):
                        async with node.client() as client:
                            client.writer.write(frame(handler.api_key, version, 1, filler * 60) + frame(18, 0, 2, b""))
                            client.writer.write_eof()
                            await client.closed()

    run(body)


def test_tls_and_http_on_the_plain_port_are_told_apart(tmp_path: Path) -> None:
    """The real clients of both: each fails at once, and the log says what it was."""
    with BrokerProcess(tmp_path / "data") as broker:
        host, port = broker.kafka.rsplit(":", 1)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((host, int(port)), 60) as plain,
            pytest.raises(OSError, match=r"EOF|reset|SSL"),
        ):
            context.wrap_socket(plain)
        visitor = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
        visitor.request("GET", "/metrics")
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            visitor.getresponse()
        visitor.close()
        with Raw(broker.kafka) as client:
            assert client.alive()
        # One kind of warning, so one line: which of the two came first is told, the other is counted.
        assert "this looks like a TLS handshake" in broker.log_text()


def test_announced_bytes_take_no_memory(tmp_path: Path) -> None:
    """Three hundred strangers announce 100 MiB each, or 64 KiB and bring all but a byte: neither is 300 MiB."""
    with BrokerProcess(tmp_path / "data") as broker:
        before = peak_bytes(broker.pid)
        strangers = []
        for number in range(300):
            stranger = Raw(broker.kafka)
            stranger.socket.sendall(struct.pack(">i", 100 * MIB if number % 2 else MIB) + b"\0\x03\0\x01" * 4)
            strangers.append(stranger)
        with Raw(broker.kafka) as client:
            assert client.alive()
        assert peak_bytes(broker.pid) - before < 300 * 96 * KIB + 16 * MIB
        for stranger in strangers:
            stranger.socket.close()


@pytest.mark.parametrize("request_", ["ApiVersions", "Metadata", "Fetch"])
def test_a_hundred_thousand_requests_of_a_client_that_never_reads(tmp_path: Path, request_: str) -> None:
    """They wait in its own socket; the others are served, and once it reads it gets every answer in order."""
    count = 100_000 if request_ == "ApiVersions" else 20_000
    with BrokerProcess(tmp_path / "data") as broker, Raw(broker.kafka) as client, Raw(broker.kafka) as other:
        assert client.create("s") is ErrorCode.none
        assert client.produce("s", good(bytes(1_000))).error_code is ErrorCode.none
        one = {"ApiVersions": (18, 0, b""), "Metadata": (3, 1, b"\xff" * 4), "Fetch": (1, 4, fetch_of("s"))}[request_]
        data = b"".join(frame(one[0], one[1], number, one[2]) for number in range(count))
        before = peak_bytes(broker.pid)
        sender = threading.Thread(target=client.socket.sendall, args=(data,))
        sender.start()
        for _ in range(30):
            assert other.alive()
        assert other.produce("s", good()).error_code is ErrorCode.none
        assert peak_bytes(broker.pid) - before < 48 * MIB
        for number in range(count):
            assert struct.unpack_from(">i", client.reply())[0] == number
        sender.join(WAIT_S)
        assert not sender.is_alive()
        assert peak_bytes(broker.pid) - before < 48 * MIB
        assert other.alive()


def fetch_of(name: str) -> bytes:
    return written(fetch_request(4, type("Named", (), {"name": name, "id": None}), {0: 0}))


@pytest.mark.parametrize("replica", [0, 1, 2, 99, 2**31 - 1])
def test_a_fetch_that_claims_to_be_a_replicas(
    tmp_path: Path, warnings_logged: list[dict[str, Any]], replica: int
) -> None:
    """Brokers do not replicate over this listener: nothing is read, the position counts for nothing, and the log names
    the claim."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            await answered(client, stream, good())
            for version in (4, 6, 12):
                for offset in (0, 2, 1 << 40):
                    parts = await fetched(client, version, stream, {0: offset, 7: 0}, replica_id=replica)
                    assert {part.error_code for part in parts} == {ErrorCode.cluster_authorization_failed}
                    assert not any(part.records for part in parts)
            assert node.broker.replicas.find("s", 0).high_watermark == 2
            (line,) = warnings_logged
            assert "replicate" in line["event"]
            (part,) = await fetched(client, 12, stream, {0: 0}, replica_id=-2)  # a consumer for debugging
            assert values_in(part.records) == [b"x", b"y"]

    run(body)


def test_bytes_behind_a_request_are_ignored(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    """As in Kafka they are ignored: clients of a later day may send more. They are counted."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            client.writer.write(frame(3, 1, 3, b"\xff\xff\xff\xff" + b"more" * 100))
            assert (await client.frame())[:4] == b"\0\0\0\x03"
            assert trailing(node) == 1

    run(body)


def trailing(node: Running) -> int:
    count: int = node.metrics.trailing
    return count
