"""A nats-server in operator mode: who may do what is in tokens that an operator, accounts and users have signed."""

import asyncio
import base64
import hashlib
import json
import secrets
import time
from pathlib import Path
from typing import Any

import nkeys
import pytest
from tests.nats.links import linked, up
from tests.nats.servers import (
    NatsServer,
    attach,
    metrics,
    needs_nats_server,
    on_a_loop,
    published,
    stored,
    taken,
)
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

import nats
from logboom.nats.metrics import NatsMetrics

pytestmark = needs_nats_server

OPERATOR, ACCOUNT, USER = (14 << 3, 0, 20 << 3)
"""The first byte of each kind of public key, in its place before base32."""


class Signer:
    """A pair of keys, as `nsc` makes them."""

    def __init__(self, kind: int) -> None:
        raw = bytes([(18 << 3) | (kind >> 5), (kind & 31) << 3]) + secrets.token_bytes(32)
        checksum = nkeys.crc16(bytearray(raw)).to_bytes(2, "little")
        self.seed = base64.b32encode(raw + checksum).rstrip(b"=")
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def signed(self, subject: str, name: str, claims: dict[str, Any], **more: int) -> str:
        """A token about the holder of a public key."""
        body = {"iat": int(time.time()), "iss": self.public, "name": name, "sub": subject, "nats": claims, **more}
        digest = hashlib.sha256(json.dumps(body).encode()).digest()
        body["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
        parts = [_packed({"typ": "JWT", "alg": "ed25519-nkey"}), _packed(body)]
        signature = self._pair.sign(".".join(parts).encode())
        return ".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=").decode()])


def _packed(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=").decode()


class Tenants:
    """An operator with one account."""

    def __init__(self) -> None:
        operator, self._account = Signer(OPERATOR), Signer(ACCOUNT)
        unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        claims = {"type": "account", "version": 2, "limits": {**unlimited, "wildcards": True}}
        token = operator.signed(operator.public, "operator", {"type": "operator", "version": 2})
        account = operator.signed(self._account.public, "shop", claims)
        self.lines = (
            f"operator: {token}",
            "resolver: MEMORY",
            f"resolver_preload: {{ {self._account.public}: {account} }}",
        )
        """Of a server's configuration."""

    def credentials(self, path: Path, permissions: dict[str, Any], **more: int) -> Path:
        """A file of a new user's credentials, as `nsc` writes it."""
        user = Signer(USER)
        claims = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, **permissions}
        token = self._account.signed(user.public, "user", claims, **more)
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        path.chmod(0o600)
        return path


@on_a_loop
async def test_a_broker_takes_messages_with_the_least_rights(tmp_path: Path) -> None:
    """It may subscribe to its subjects and answer on inboxes, and nothing else."""
    tenants = Tenants()
    own = tenants.credentials(
        tmp_path / "broker.creds", {"sub": {"allow": ["orders.>", "_INBOX.>"]}, "pub": {"allow": ["_INBOX.>"]}}
    )
    other = tenants.credentials(tmp_path / "shop.creds", {})
    settings = ("--set", f"nats.credentials_file={own}")
    with NatsServer(tmp_path, *tenants.lines) as server:
        with BrokerProcess(tmp_path / "data", "--nats", server.url, *settings) as broker:
            attach(broker.kafka, "orders", "orders.>")
            async with await nats.connect(server.url, user_credentials=str(other)) as client:
                await taken(client, "orders.probe")
                assert (await published(client, "orders.a", b"1", Nats_Msg_Id="one"))["seq"] == 2
                assert (await published(client, "orders.b", b"1", Nats_Msg_Id="one"))["duplicate"] is True
            assert [one.value for one in stored(broker.kafka, "orders", 2)] == [b"probe", b"1"]
            attach(broker.kafka, "payments", "payments.>")
            records = await asyncio.to_thread(stored, broker.kafka, "__advisories", 1)
            told = json.loads(records[0].value)
            assert (told["type"], told["stream"]) == ("nats.subscription_refused", "payments")
            assert 'logboom_nats_errors_total{reason="permissions"} 1.0' in metrics(broker.http)
            log = broker.log_text()
        for secret in (own.read_text(), other.read_text()):
            assert not any(line in log for line in secret.splitlines() if len(line) > 50)


@pytest.mark.parametrize("what", ["expired", "of another operator", "expires"])
@on_a_loop
async def test_who_has_no_right_to_be_there(tmp_path: Path, what: str) -> None:
    tenants = Tenants()
    ends = {"expired": -10, "expires": 3}.get(what)
    more = {} if ends is None else {"exp": int(time.time()) + ends}
    own = (Tenants() if what == "of another operator" else tenants).credentials(tmp_path / "own.creds", {}, **more)
    counted = NatsMetrics()
    with NatsServer(tmp_path, *tenants.lines) as server:
        async with linked(counted, servers=[server.url], credentials_file=str(own)) as link:
            if what == "expires":
                await up(link)
            async with asyncio.timeout(2 * WAIT_S):
                while not (counted.errors["authorization"] or counted.errors["authentication"]):
                    await asyncio.sleep(0.01)
            assert counted.connections == (what == "expires")
