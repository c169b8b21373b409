"""The connection to NATS that is kept up: log-ins of every kind, servers that go and come back, TLS."""

import asyncio
import base64
import contextlib
import shutil
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nkeys
import pytest
import uvloop
from tests.nats.links import linked, up
from tests.nats.proxy import Proxy
from tests.nats.servers import NatsServer, needs_nats_server, on_a_loop
from tests.support.server import free_port
from tests.support.waiting import WAIT_S

from logboom.base.errors import LogboomError
from logboom.base.units import MIB
from logboom.nats.config import NatsConfig
from logboom.nats.link.connection import ConnectionLostError
from logboom.nats.link.credentials import Credentials
from logboom.nats.link.frames import Delivery, Run
from logboom.nats.link.link import Link
from logboom.nats.metrics import NatsMetrics


def secret(path: Path, text: str) -> str:
    """A file with a secret."""
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)


def seed_of_a_user() -> tuple[str, str]:
    """A seed, and the public key that goes with it."""
    raw = bytes([(18 << 3) | (20 << 3 >> 5), (20 << 3 & 31) << 3]) + bytes(range(32))
    checksum = nkeys.crc16(bytearray(raw))
    seed = base64.b32encode(raw + checksum.to_bytes(2, "little")).rstrip(b"=")
    return seed.decode(), nkeys.from_seed(seed).public_key.decode()


async def carries(link: Link) -> None:
    """A message goes out and comes back in through another subscription of the same server."""
    arrived: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
    sid = link.subscribe("check.*", None, lambda run: arrived.set_result(run[0]))
    async with asyncio.timeout(WAIT_S):
        await link.round_trip()
    await link.unsubscribe([sid])


@needs_nats_server
@on_a_loop
async def test_log_ins(tmp_path: Path) -> None:
    seed, public = seed_of_a_user()
    password, token, key = (
        secret(tmp_path / name, text) for name, text in (("p", "s3cret"), ("t", "t0ken"), ("k", seed))
    )
    for lines, settings in (
        ('authorization { user: "app", password: "s3cret" }', {"user": "app", "password_file": password}),
        ('authorization { token: "t0ken" }', {"token_file": token}),
        (f"authorization {{ users: [ {{ nkey: {public} }} ] }}", {"nkey_file": key}),
    ):
        with NatsServer(tmp_path, lines) as server:
            metrics = NatsMetrics()
            async with linked(metrics, servers=[server.url], **settings) as link:
                await up(link)
                await carries(link)
            refused = NatsMetrics()
            async with linked(refused, servers=[server.url]), asyncio.timeout(WAIT_S):
                while not refused.errors["authorization"]:
                    await asyncio.sleep(0.01)
            assert refused.connections == 0


@needs_nats_server
@on_a_loop
async def test_subscriptions_come_back_with_the_server(tmp_path: Path) -> None:
    metrics = NatsMetrics()
    arrived: list[Delivery] = []
    with NatsServer(tmp_path) as server, NatsServer(tmp_path) as other:
        async with (
            linked(metrics, servers=[server.url, other.url]) as link,
            linked(NatsMetrics(), servers=[other.url]) as said,
        ):
            link.subscribe("orders.>", None, arrived.extend)
            await up(link)
            server.kill()
            async with asyncio.timeout(WAIT_S):
                while metrics.connections < 2:  # on the other one
                    await asyncio.sleep(0.01)
                await up(said)
                await link.round_trip()
                said.send(b"PUB orders.1 2\r\nhi\r\n")
                await said.round_trip()
                await link.round_trip()
    assert [(one.subject, one.payload) for one in arrived] == [(b"orders.1", b"hi")]
    assert sum(metrics.disconnects.values()) == 1, "as a close or as a reset, as the kernel has it"


@needs_nats_server
@on_a_loop
async def test_subscriptions_above_the_limit_of_a_server_are_told_of(tmp_path: Path) -> None:
    """It does not say which they are."""
    metrics, refused = NatsMetrics(), list[str]()
    with NatsServer(tmp_path, "max_subscriptions: 2") as server:
        async with linked(metrics, servers=[server.url]) as link:
            link.on_refused = refused.append
            await up(link)
            for number in range(4):
                link.subscribe(f"orders.{number}", None, print, lambda _: pytest.fail("the server has named none"))
            async with asyncio.timeout(WAIT_S):
                await link.round_trip()
            assert link.is_up
    assert refused == ["maximum subscriptions exceeded"] * 2
    assert metrics.errors["maximum subscriptions"] == 2


@needs_nats_server
@on_a_loop
async def test_who_waits_on_a_connection_that_is_lost_goes_on_once_the_loss_is_noted(tmp_path: Path) -> None:
    """What a handover waits for is one: it goes on by what is noted, that messages may be missing."""
    noted: list[str] = []
    known = 0

    def went_on(_: asyncio.Future[None]) -> None:
        nonlocal known
        known = len(noted)

    with NatsServer(tmp_path) as server:
        async with Proxy(server.port) as proxy, linked(NatsMetrics(), servers=[proxy.url]) as link:
            link.on_lost = lambda kind, why: noted.append(kind)
            await up(link)
            proxy.fall_silent()
            trip = link.round_trip()
            trip.add_done_callback(went_on)
            await proxy.reset()
            with pytest.raises(ConnectionLostError):
                await asyncio.wait_for(trip, WAIT_S)
    assert (known, len(noted)) == (1, 1)


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here to make certificates with")


def self_signed(directory: Path) -> tuple[Path, Path]:
    """A new key, and a certificate for this machine that is signed with it."""
    key, certificate = directory / "key.pem", directory / "cert.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += [
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    return key, certificate


@needs_nats_server
@needs_openssl
@on_a_loop
async def test_tls_and_mutual_tls(tmp_path: Path) -> None:
    key, certificate = self_signed(tmp_path)
    lines = f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{certificate}", verify: true }}'
    own = {"ca_file": certificate, "cert_file": certificate, "key_file": key}
    with NatsServer(tmp_path, lines) as server:
        async with linked(NatsMetrics(), servers=[server.url], tls=own) as link:
            await up(link)
            await carries(link)
        unknown = NatsMetrics()
        async with linked(unknown, servers=[server.url], tls={"required": True}), asyncio.timeout(WAIT_S):
            while not unknown.failed_connections:  # its certificate is signed by nobody that the system knows
                await asyncio.sleep(0.01)
        assert unknown.connections == 0


@needs_openssl
@on_a_loop
async def test_a_server_that_says_nothing_before_tls(tmp_path: Path) -> None:
    """`handshake_first` of nats-server 2.10.4 and later."""
    key, certificate = self_signed(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    said: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"tls_required":true}\r\n')
        said.put_nowait(await reader.readuntil(b"PING\r\n"))
        writer.write(b"PONG\r\n")
        await reader.read()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(serve, "127.0.0.1", port, ssl=context):
        tls = {"ca_file": certificate, "handshake_first": True}
        async with linked(NatsMetrics(), servers=[f"nats://127.0.0.1:{port}"], tls=tls) as link:
            await up(link)
    assert b'"tls_required":true' in said.get_nowait()


@needs_nats_server
@needs_openssl
@on_a_loop
async def test_certificates_that_are_replaced_while_a_broker_runs(tmp_path: Path) -> None:
    """Those of before were used until the broker was started anew: it did not connect any more."""
    metrics = NatsMetrics()
    key, certificate = self_signed(tmp_path)
    lines = f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{certificate}", verify: true }}'
    own = {"ca_file": certificate, "cert_file": certificate, "key_file": key}
    with NatsServer(tmp_path, lines) as server:
        async with linked(metrics, servers=[server.url], tls=own) as link:
            await up(link)
            server.kill()
            self_signed(tmp_path)
            server.start()
            async with asyncio.timeout(WAIT_S):
                while metrics.connections < 2:
                    await asyncio.sleep(0.01)
            await carries(link)


def test_credentials_files_and_secrets_that_cannot_be_used(tmp_path: Path) -> None:
    seed, _ = seed_of_a_user()
    text = (
        "-----BEGIN NATS USER JWT-----\neyJ0.eyJq.c2ln\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    options = Credentials(NatsConfig(credentials_file=Path(secret(tmp_path / "app.creds", text)))).options("nonce")
    assert options["jwt"] == "eyJ0.eyJq.c2ln"
    assert len(base64.urlsafe_b64decode(f"{options['sig']}==")) == 64
    for name, content in (("credentials_file", "nothing"), ("nkey_file", "SUNOSEED"), ("password_file", None)):
        path = tmp_path / f"bad-{name}"
        if content is not None:
            secret(path, content)
        with pytest.raises(LogboomError) as refused:
            Credentials(NatsConfig.model_validate({name: path})).check()
        assert str(path) in str(refused.value)
        assert content is None or content not in str(refused.value)


def test_a_flood_leaves_others_their_turn() -> None:
    """On uvloop, which would read 8 MB before anything else: clients of Kafka waited for a quarter of a million
    messages, and so did every timer."""
    frame = b"MSG a 1 64\r\n%b\r\n" % bytes(64)
    sent = 32 * MIB // len(frame)

    def flood(listening: socket.socket) -> None:
        conn, _ = listening.accept()
        with conn:
            conn.sendall(b'INFO {"version":"2.9.10"}\r\n')
            received = b""
            while not received.endswith(b"PING\r\n"):
                received += conn.recv(4_096)
            conn.sendall(b"PONG\r\n")
            with contextlib.suppress(OSError):  # the client has what it waited for
                conn.sendall(frame * sent)

    async def receive(port: int) -> list[int]:
        """How many messages came in each turn of the loop."""
        loop, turns = asyncio.get_running_loop(), [0]
        done = loop.create_future()

        def arrived(run: Run) -> None:
            if done.done():
                return
            turns[-1] += len(run)
            time.sleep(0.002)  # so that more is always there
            if sum(turns) >= sent // 2:
                done.set_result(None)

        def next_turn() -> None:
            if not done.done():
                turns.append(0)
                loop.call_soon(next_turn)

        async with linked(NatsMetrics(), servers=[f"nats://127.0.0.1:{port}"]) as link:
            link.subscribe("a", None, arrived)
            next_turn()
            await asyncio.wait_for(done, WAIT_S)
        return turns

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(flood, listening)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            turns = runner.run(receive(listening.getsockname()[1]))
        flooding.result(WAIT_S)
    assert max(turns) * len(frame) <= MIB
