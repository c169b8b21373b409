"""Credentials of requests: a user with a password, or a token, since most HTTP products accept either.

Knows settings and plans. Must not know any particular product. Cheap to import: `pipeline check` does.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec

from logboom.base.settings import Settings
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import SinkReport
from logboom.pipeline.sinks.bulk.model import secret_of
from logboom.pipeline.sinks.http.model import HttpModel, HttpSink


class BasicAuthModel(Settings):
    """A user and a password."""

    user: str
    password_env: str | None = None
    password_file: str | None = None


class BasicAuth(msgspec.Struct, frozen=True, kw_only=True):
    """A user and where the password is found."""

    user: str
    password: KeyRef

    def header(self, secrets: Mapping[str, str]) -> str:
        """The value of the header `Authorization` (RFC 7617)."""
        return "Basic " + b64encode(f"{self.user}:{secrets[self.password.id]}".encode()).decode()


class AuthorizedModel(HttpModel):
    """Keys of products that take a user or a token."""

    auth: BasicAuthModel | None = None
    """A user and a password."""

    token_env: str | None = None
    """Environment variable that holds a token; by default it is sent as `Authorization: Bearer`."""

    token_file: str | None = None
    """The same as a file."""


class AuthorizedSink(HttpSink, frozen=True, kw_only=True):
    """A product that takes a user or a token."""

    auth: BasicAuth | None = None
    token: KeyRef | None = None

    @property
    def credentials(self) -> tuple[tuple[str, KeyRef], ...]:
        password = () if self.auth is None else (("auth", self.auth.password),)
        return password if self.token is None else (*password, ("token", self.token))

    def authorization(
        self, secrets: Mapping[str, str], *, header: str = "authorization", scheme: str = "Bearer "
    ) -> dict[str, str]:
        """The authorization header of requests. `header`: its name for a token; `scheme`: the text before the token."""
        if self.auth is not None:
            return {"authorization": self.auth.header(secrets)}
        return {} if self.token is None else {header: f"{scheme}{secrets[self.token.id]}"}


class Authorization(TypedDict):
    """The fields that an `AuthorizedSink` has in addition to those of all sinks over HTTP."""

    auth: BasicAuth | None
    token: KeyRef | None


def authorization_of(model: AuthorizedModel, report: SinkReport) -> Authorization:
    """The values of the keys `auth`, `token_env` and `token_file`. Problems are reported."""
    token = secret_of(model, "token", report)
    check_one_credential(model.auth, token, "a token", report)
    return Authorization(auth=basic_auth(model.auth, report, "auth"), token=token)


def check_one_credential(auth: BasicAuthModel | None, other: KeyRef | None, what: str, report: SinkReport) -> None:
    """Report a user if there is another credential, `what`."""
    if auth is not None and other is not None:
        report.problem("auth", f"and {what} are two credentials; give one")


def basic_auth(model: BasicAuthModel | None, report: SinkReport, key: str) -> BasicAuth | None:
    """Make the node for the user in a sink's key `key`."""
    if model is None:
        return None
    if ":" in model.user:
        report.problem(key, "a user of basic authentication has no ':' in its name")
    password = secret_of(model, "password", _Below(report, key), needed=True)
    return None if password is None else BasicAuth(user=model.user, password=password)


class _Below:
    """Reports problems of a group of keys inside those of a sink."""

    def __init__(self, report: SinkReport, key: str) -> None:
        self._report = report
        self._key = key

    def problem(self, key: str, message: str) -> None:
        """An error: the pipeline cannot run with this key."""
        self._report.problem(self._key, f"{key} {message}")

    def warning(self, key: str, message: str) -> None:
        """A warning: the pipeline runs, but the key is probably a mistake."""
        self._report.warning(self._key, f"{key} {message}")

    def unknown(self, key: str, what: str, word: str, known: Sequence[str]) -> None:
        """An error: the key names a thing that does not exist."""
        self._report.unknown(self._key, what, word, known)
