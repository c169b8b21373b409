"""Service accounts of Google Cloud: a key signs a request for a token, which is used until it expires.

See RFC 7523 and "Using OAuth 2.0 for Server to Server Applications". Knows the key and the HTTP client.
"""

from __future__ import annotations

import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from logboom.pipeline.plan.locations import url_fault
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.bulk.target import GiveUpError, TryAgainError
from logboom.pipeline.sinks.http.answers import check_status
from logboom.pipeline.sinks.http.model import HttpModel, HttpSink

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from logboom.pipeline.sinks.http.client import HttpClient

_TOKEN_S: Final = 3_600
_RENEWED_BEFORE_S: Final = 120
_encode = msgspec.json.encode


class GoogleModel(HttpModel):
    """Keys of the products of Google Cloud."""

    project: str
    key_env: str | None = None
    """Environment variable that holds the JSON key of a service account."""

    key_file: str | None = None
    """The same as a file."""


class GoogleSink(HttpSink, frozen=True, kw_only=True):
    """A product of Google Cloud."""

    project: str
    key: KeyRef

    @property
    def credentials(self) -> tuple[tuple[str, KeyRef], ...]:
        return (("key", self.key),)

    def tokens(self, secrets: Mapping[str, str], scope: str) -> Tokens:
        """The tokens of the service account for the scope.

        :raises GiveUpError: its key cannot be read.
        """
        from logboom.pipeline.sinks.http.client import HttpClient

        account = account_of(secrets[self.key.id])
        ca = None if self.http.ca is None else secrets[self.http.ca.id]
        timeout_s = self.sending.timeout_ms / 1_000
        client = HttpClient(account.token_uri, headers={}, ca=ca, compression="none", timeout_s=timeout_s)
        return Tokens(account, client, scope)


class ServiceAccount(msgspec.Struct, frozen=True):
    """The needed parts of a service account's key file."""

    client_email: str
    private_key: str
    private_key_id: str = ""
    token_uri: str = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address


def account_of(text: str) -> ServiceAccount:
    """Reads a JSON key.

    :raises GiveUpError: it is not a valid key.
    """
    try:
        account = msgspec.json.decode(text, type=ServiceAccount)
    except msgspec.DecodeError as error:
        raise GiveUpError("the key is not the JSON key of a service account") from error
    if url_fault(account.token_uri) is not None:
        raise GiveUpError("the token_uri in the key of the service account is not an address")
    return account


class Tokens:
    """The token of a service account, requested when it is first needed."""

    def __init__(self, account: ServiceAccount, client: HttpClient, scope: str) -> None:
        """`client`: an HTTP client for the account's `token_uri`."""
        self._account = account
        self._client = client
        self._scope = scope
        self._lock = threading.Lock()
        self._token = ""
        self._ends_at = 0.0

    def current(self) -> str:
        """A token that is valid for some more time."""
        with self._lock:
            if time.monotonic() + _RENEWED_BEFORE_S >= self._ends_at:
                self._ask()
            return self._token

    def drop(self) -> None:
        """Forget a refused token; the next call requests a new one."""
        with self._lock:
            self._ends_at = 0.0

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self) -> None:
        grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
        body = urlencode({"grant_type": grant, "assertion": self._assertion()}).encode()
        answer = self._client.post("", body, "application/x-www-form-urlencoded")
        if answer.status == 400:
            raise GiveUpError(
                f"the token of the service account is refused: {answer.body[:300].decode(errors='replace')}"
            )
        check_status(answer, f"the server of tokens at {self._client.place}")
        try:
            told = msgspec.json.decode(answer.body, type=dict[str, Any])
            self._token = str(told["access_token"])
            self._ends_at = time.monotonic() + max(float(told.get("expires_in", 0)), _RENEWED_BEFORE_S + 1.0)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise TryAgainError("the token server gave an answer that cannot be read") from error

    def _assertion(self) -> str:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        key = _private_key(self._account.private_key)
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": self._account.private_key_id}
        claims = {
            "iss": self._account.client_email,
            "scope": self._scope,
            "aud": self._account.token_uri,
            "iat": now,
            "exp": now + _TOKEN_S,
        }
        signed = b".".join(_base64(_encode(part)) for part in (head, claims))
        signature = key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        return (signed + b"." + _base64(signature)).decode()


@lru_cache(maxsize=8)
def _private_key(pem: str) -> RSAPrivateKey:
    """Parse a key, cached: checking its primes takes 70 ms, and each attempt at a batch needs it.

    :raises GiveUpError: it is not a valid key.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    try:
        key = serialization.load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise GiveUpError("the private_key of the service account cannot be read") from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise GiveUpError("the private_key of the service account is not an RSA key")
    return key


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
