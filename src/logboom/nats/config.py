"""Settings of the connection to NATS."""

from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from logboom.base.settings import DurationS, Settings, SizeBytes
from logboom.base.units import MIB

EMBEDDED: Final = "embedded"
PORT_DEFAULT: Final = 4222
_SCHEMES: Final = ("nats", "tls")


def split_server(url: str) -> SplitResult:
    """The parts of `nats://HOST:PORT` or `tls://HOST:PORT`; scheme and port may be left out. Raises ValueError.

    >>> split_server("nats.example.org").port
    4222
    """
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    host = parts.hostname or ""
    if parts.scheme not in _SCHEMES or not _is_host(host) or parts.path not in ("", "/") or parts.query:
        raise ValueError("should be addresses such as nats://127.0.0.1:4222")
    if parts.username is not None or parts.password is not None:
        raise ValueError("should hold no user and no password: nats.user and nats.password_file have them")
    if parts.port is None:
        parts = parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{PORT_DEFAULT}")
    return parts


def _is_host(name: str) -> bool:
    """Whether a host can have this name: asyncio raises what is no OSError for others, a label too long or empty."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return name.isprintable() and name.split() == [name]


def _listed(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _checked(servers: list[str]) -> list[str]:
    if EMBEDDED in servers and len(servers) > 1:
        raise ValueError(f"should be {EMBEDDED} alone, or addresses")
    for server in servers:
        if server != EMBEDDED:
            split_server(server)
    return servers


class NatsTls(Settings):
    """TLS on the way to NATS."""

    ca_file: Path | None = None
    """Certificates of the authorities that a server's is to be signed by; null takes those of the system."""

    cert_file: Path | None = None
    """This client's own certificate, for servers that ask for one (mutual TLS)."""

    key_file: Path | None = None
    """The key of `cert_file`."""

    required: bool = False
    """Speak to no server without TLS. It is spoken in any case with a `tls://` address, with a server that demands it,
    and where one of the files is set."""

    handshake_first: bool = False
    """Begin TLS at once, for servers that say nothing before it (`handshake_first` in their `tls` block)."""

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("nats.tls.cert_file and nats.tls.key_file go together")
        return self

    @property
    def wanted(self) -> bool:
        """Whether TLS is spoken whatever the server says."""
        return self.required or self.handshake_first or self.ca_file is not None or self.cert_file is not None


class NatsConfig(Settings):
    """Which NATS this broker takes messages from, and as whom."""

    servers: Annotated[list[str], BeforeValidator(_listed), AfterValidator(_checked)] = Field(default=[])
    """Addresses of the servers of one NATS, `nats://HOST:PORT,...`, tried in this order, round and round; others of
    their cluster are learnt from them. `embedded` starts a nats-server on this machine. Empty: this broker takes
    nothing from NATS."""

    discover_servers: bool = True
    """Connect to servers too that are not in `servers`, but that one of these tells of as others of its cluster. False
    where the addresses that they tell cannot be reached from here."""

    embedded_listen: str = "127.0.0.1:4222"
    """Where an embedded nats-server listens; port 0 asks the system for a free one. Whoever reaches it may publish."""

    user: str | None = None
    """User to log in as."""

    password_file: Path | None = None
    """File with the password of `user`."""

    token_file: Path | None = None
    """File with a token to log in with."""

    nkey_file: Path | None = None
    """File with the seed of the nkey to log in with."""

    credentials_file: Path | None = None
    """File with a user's JWT and the seed of its key, as `nsc` makes it."""

    tls: NatsTls = NatsTls()

    max_inflight_bytes: SizeBytes = Field(default=64 * MIB, ge=MIB)
    """Memory of the messages that have arrived and are not stored yet. At so many bytes the connection is not read for
    a moment; where that does not help, messages are refused: with an error on their reply subject, or counted as
    dropped."""

    max_unsent_bytes: SizeBytes = Field(default=16 * MIB, ge=MIB)
    """Acks that the server has not read; above it the connection is not read until it has."""

    reply_wait_s: DurationS = Field(default=10.0, gt=0)
    """How long the replies to a request of a recorded service (`logboom.nats.services`) are waited for. Later ones are
    not recorded."""

    max_pending_request_bytes: SizeBytes = Field(default=16 * MIB, ge=MIB)
    """Memory of the requests of a stream whose replies are waited for, some 400 bytes each. Above it the oldest are
    forgotten: their replies are not recorded."""

    connect_timeout_s: DurationS = Field(default=5.0, gt=0)
    """How long a connection may take, with TLS and the log-in."""

    reconnect_pause_max_s: DurationS = Field(default=5.0, gt=0)
    """The longest pause between two attempts to connect; the first is a twentieth of a second, each is twice the one
    before."""

    ping_interval_s: DurationS = Field(default=10.0, gt=0)
    """How often the server is asked whether it is still there. A connection on which it leaves two of these questions
    unanswered is given up."""
