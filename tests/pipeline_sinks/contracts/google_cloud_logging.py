"""Cloud Logging's `entries.write`, and the server of tokens beside it.

"Method: entries.write", "LogEntry" and "WriteLogEntriesPartialErrors" in the reference of the Cloud Logging API v2,
"Using OAuth 2.0 for Server to Server Applications" for the token, "Quotas and limits" for sizes (256 kB an entry; 429
RESOURCE_EXHAUSTED without Retry-After), read on 2026-11-23 and 2026-11-27. `insertId` with time tells repeats within
a project, whatever their logs; with
`partialSuccess` entries that are refused are named by their index and the others are written. `jsonPayload` is a Struct
of Protocol Buffers, whose numbers are doubles: a request with one beyond them is none.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64decode
from functools import cache
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from tests.pipeline_sinks.server import Contract, Reply, Request

KEYS = "type: google_cloud_logging, url: '{url}', project: shop-1234, key_env: TOKEN, batch: {{max_events: 50}}"
ENTRY_MAX = 256 * 1024


class GoogleCloudLogging(Contract):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, str]] = set()

    def handle(self, request: Request) -> Reply:
        if request.path == "/token":
            return _token(request, self.secret)
        if request.headers.get("authorization") != f"Bearer {self.secret}":
            return Reply(401, f"no such token: {request.headers.get('authorization')}".encode())
        assert request.path == "/v2/entries:write", request.path
        if len(request.body) > 10_000_000:
            return Reply(413, b"")
        try:
            told = json.loads(request.body.decode(), parse_int=_double, parse_float=_double, parse_constant=_double)
        except ValueError as error:
            return Reply(400, str(error).encode())
        assert told["logName"].startswith("projects/shop-1234/logs/")
        assert told["partialSuccess"] is True
        if told.get("dryRun"):
            return Reply(200, b"{}")
        assert all(len(json.dumps(entry, ensure_ascii=False).encode()) <= ENTRY_MAX for entry in told["entries"])
        errors: dict[str, Any] = {}
        for index, entry in enumerate(told["entries"]):
            if entry["jsonPayload"].get("message") == "poison":
                errors[str(index)] = {"code": 3, "message": "Log entry with poison"}
                continue
            identity = (entry["insertId"], entry.get("timestamp", ""))
            if identity not in self.seen:
                self.seen.add(identity)
                self.events[entry["labels"]["event_id"]] += 1
        if not errors:
            return Reply(200, b"{}")
        kind = "type.googleapis.com/google.logging.v2.WriteLogEntriesPartialErrors"
        details = [{"@type": kind, "logEntryErrors": errors}]
        return Reply(400, json.dumps({"error": {"code": 400, "message": "bad", "details": details}}).encode())


def _double(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("Invalid JSON payload: a number that is no double")
    return number


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def account(url: str, name: str = "writer") -> str:
    """The JSON key of a service account."""
    pem = private_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return json.dumps(
        {"client_email": name, "private_key": pem.decode(), "private_key_id": "k1", "token_uri": f"{url}/token"}
    )


def _token(request: Request, token: str) -> Reply:
    form = parse_qs(request.body.decode())
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    signed, _, signature = form["assertion"][0].rpartition(".")
    private_key().public_key().verify(_bytes(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    claims = json.loads(_bytes(signed.partition(".")[2]))
    if claims["iss"] != "writer":
        return Reply(401, b'{"error": "invalid_grant"}')
    assert claims["exp"] - claims["iat"] == 3600
    return Reply(200, json.dumps({"access_token": token, "expires_in": 3600}).encode())


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
