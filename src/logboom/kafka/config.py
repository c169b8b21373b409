"""Settings of the Kafka server. Every limit has its unit in its name; what reaching one does is in docs/limits.md."""

from typing import Annotated

from pydantic import AfterValidator, Field

from logboom.base.dynamic import Dynamic
from logboom.base.settings import Address, DurationMs, DurationS, Settings, SizeBytes
from logboom.base.units import KIB, MIB, MINUTE_MS


def parse_overrides(text: str) -> dict[str, int]:
    """The limit of each address of `ADDRESS:COUNT,...`. Raises ValueError.

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
    """Where Kafka clients connect, and how much they may ask for."""

    listen: Address = "127.0.0.1:9092"
    """Address to listen on; port 0 asks the system for a free one."""

    advertised: Address | None = None
    """Address that clients connect to (Kafka's advertised listener). Default: the address listened on, or the name of
    this machine where that is every interface."""

    max_connections: Annotated[int, Dynamic("max.connections")] = Field(default=4096, ge=1)
    """Open connections; one more is closed at once and logged."""

    max_connections_per_address: Annotated[int | None, Dynamic("max.connections.per.ip")] = Field(default=None, ge=0)
    """Open connections from one address; null sets no such limit."""

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
    """Requests in flight on one connection; at this many its socket is not read until replies have left."""

    max_inflight_bytes: Annotated[SizeBytes, Dynamic()] = Field(default=64 * MIB, ge=KIB)
    """Memory of the requests in flight on one connection; at this many bytes its socket is not read until replies have
    left."""

    max_inflight_total_requests: Annotated[int, Dynamic()] = Field(default=65_536, ge=1)
    """Requests in flight on all connections together, waiting fetches included; at this many a connection that has one
    is not read until its replies have left."""

    max_inflight_total_bytes: Annotated[SizeBytes, Dynamic()] = Field(default=512 * MIB, ge=KIB)
    """Memory of the requests in flight on all connections together; at this many bytes no socket is read until replies
    have left."""

    max_unsent_bytes: Annotated[SizeBytes, Dynamic()] = Field(default=MIB, ge=KIB)
    """Reply bytes that one peer has not read; above it, its requests are not read until it does."""

    max_unsent_total_bytes: Annotated[SizeBytes, Dynamic()] = Field(default=512 * MIB, ge=KIB)
    """Reply bytes that peers have not read, over all connections; above it, each fetch gets one batch at a time."""

    request_timeout_s: Annotated[DurationS, Dynamic()] = Field(default=30.0, gt=0)
    """A connection is closed if a request has begun to arrive and neither its end nor 16 KiB more arrives in this time,
    or if its peer has shut down its side and its replies are not ready in this time. Counted in whole seconds."""

    idle_timeout_s: Annotated[DurationS, Dynamic("connections.max.idle.ms", in_ms=True)] = Field(default=600.0, gt=0)
    """A connection that sends nothing for this long, with no reply outstanding, is closed."""

    max_fetch_bytes: Annotated[SizeBytes, Dynamic("fetch.max.bytes")] = Field(default=50 * MIB, ge=KIB)
    """Most record bytes in one fetch response, whatever the client asks for (the first batch is always whole)."""

    max_fetch_wait_ms: Annotated[DurationMs, Dynamic()] = Field(default=5 * MINUTE_MS, ge=0)
    """Longest time a fetch waits for records, whatever the client asks for."""

    max_waiting_fetches: Annotated[int, Dynamic()] = Field(default=20_000, ge=0)
    """Fetches waiting for records; one more is answered at once with what is there."""

    max_fetch_sessions: Annotated[int, Dynamic("max.incremental.fetch.session.cache.slots")] = Field(
        default=1_000, ge=0
    )
    """Incremental fetch sessions in the cache (Kafka's max.incremental.fetch.session.cache.slots); a consumer without
    one names all its partitions in each fetch, as older clients do."""

    max_fetch_session_partitions: Annotated[int, Dynamic()] = Field(default=200_000, ge=0)
    """Partitions of all incremental fetch sessions together."""
