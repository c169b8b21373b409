"""Settings of the Kafka door. Every limit has its unit in its name; crossing one gives an error or a wait."""

from typing import Annotated

from pydantic import AfterValidator, Field

from logboom.base.dynamic import Dynamic, Static
from logboom.base.settings import Address, DurationMs, DurationS, Settings, SizeBytes
from logboom.base.units import KIB, MIB, MINUTE_MS


def parse_overrides(text: str) -> dict[str, int]:
    """Limits by address. Raises ValueError.

    >>> parse_overrides("10.0.0.7:200, ::1:5")
    {'10.0.0.7': 200, '::1': 5}
    """
    limits: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        address, _, count = part.rpartition(":")
        if not address or not (count.isascii() and count.isdigit()):
            raise ValueError(f"{part!r} is no ADDRESS:COUNT")
        limits[address.strip("[]")] = int(count)
    return limits


def _checked_overrides(text: str) -> str:
    parse_overrides(text)
    return text


class KafkaConfig(Settings):
    """Where Kafka clients come in, and how much they may ask for."""

    listen: Address = "127.0.0.1:9092"
    """Address to listen on; port 0 asks the system for a free one."""

    advertised: Address | None = None
    """Address that clients are told to connect to. Without one: the address listened on, or this machine's name where
    that is every interface."""

    max_connections: Annotated[int, Dynamic("max.connections")] = Field(default=4096, ge=1)
    """Connections at one time; one more is closed at once and logged."""

    max_connections_per_address: Annotated[int | None, Dynamic("max.connections.per.ip")] = Field(default=None, ge=0)
    """Connections from one address at one time; null sets no limit of its own."""

    max_connections_per_address_overrides: Annotated[
        str, AfterValidator(_checked_overrides), Dynamic("max.connections.per.ip.overrides")
    ] = ""
    """Other limits for single addresses, as in Kafka: `10.0.0.7:200,10.0.0.8:0`."""

    max_request_bytes: Annotated[SizeBytes, Dynamic("socket.request.max.bytes")] = Field(
        default=100 * MIB, ge=KIB, le=2**31 - 1
    )
    """Longest request; a longer one closes the connection before its body is read."""

    max_request_elements: Annotated[int, Dynamic()] = Field(default=50_000, ge=100)
    """Most array elements and tagged fields in one request; more of them close the connection."""

    max_inflight_requests: Annotated[int, Dynamic()] = Field(default=512, ge=1)
    """Requests of one connection that are being answered; at this many its socket is not read until replies leave."""

    max_inflight_bytes: Annotated[SizeBytes, Dynamic()] = Field(default=64 * MIB, ge=KIB)
    """Memory for the requests of one connection that are being answered; at this many bytes its socket is not read
    until replies leave."""

    max_inflight_total_requests: Annotated[int, Dynamic()] = Field(default=65_536, ge=1)
    """Requests of all connections together that are being answered, those that wait for records included; at this many
    a connection with one under way is not read until its replies leave."""

    max_inflight_total_bytes: Annotated[SizeBytes, Dynamic()] = Field(default=512 * MIB, ge=KIB)
    """Memory for the requests of all connections together that are being answered; at this many bytes no socket is
    read until replies leave."""

    max_unsent_bytes: Annotated[SizeBytes, Dynamic()] = Field(default=MIB, ge=KIB)
    """Reply bytes that wait for a peer to read them; above, its requests are not read until it does."""

    max_unsent_total_bytes: Annotated[SizeBytes, Dynamic()] = Field(default=512 * MIB, ge=KIB)
    """Reply bytes that wait for peers to read them, over all connections; above, each fetch gets one batch at a
    time."""

    request_timeout_s: Annotated[DurationS, Dynamic()] = Field(default=30.0, gt=0)
    """A connection whose request has begun and brings neither its end nor 16 KiB more within such a time is closed;
    so is one that was half-closed by its peer and has not got its answers by then. Counted in whole seconds."""

    idle_timeout_s: Annotated[DurationS, Dynamic("connections.max.idle.ms", in_ms=True)] = Field(default=600.0, gt=0)
    """A connection that sends nothing for so long, with no reply outstanding, is closed."""

    max_fetch_bytes: Annotated[SizeBytes, Dynamic("fetch.max.bytes")] = Field(default=50 * MIB, ge=KIB)
    """Most record bytes in one fetch reply, whatever the client asks for (the first batch is always whole)."""

    max_fetch_wait_ms: Annotated[DurationMs, Dynamic()] = Field(default=5 * MINUTE_MS, ge=0)
    """Longest time a fetch waits for records, whatever the client asks for."""

    max_waiting_fetches: Annotated[int, Dynamic()] = Field(default=20_000, ge=0)
    """Fetches that wait for records at one time; one more is answered at once with what is there."""

    max_fetch_sessions: Annotated[int, Dynamic("max.incremental.fetch.session.cache.slots")] = Field(
        default=1_000, ge=0
    )
    """Incremental fetch sessions remembered at one time (Kafka's max.incremental.fetch.session.cache.slots); without
    one a consumer names all its partitions in each fetch, as older clients do."""

    max_fetch_session_partitions: Annotated[int, Dynamic()] = Field(default=200_000, ge=0)
    """Partitions remembered in all incremental fetch sessions together."""

    quota_window_num: Annotated[int, Static("quota.window.num")] = Field(default=11, ge=2, le=3_600)
    """With the next: a client that has a quota may use ahead what it allows in all of these but one."""

    quota_window_size_s: Annotated[DurationS, Static("quota.window.size.seconds")] = Field(
        default=1.0, ge=0.1, le=3_600
    )
    """With the one before: 11 of 1 s let ten seconds' worth pass at once. Nobody waits longer than one of them for
    taking too much of the broker's time, or for too many connections."""
