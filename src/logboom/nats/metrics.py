"""What the way to NATS counts, for `/metrics` to read. On the event loop alone."""

from collections import Counter
from dataclasses import dataclass, field

from logboom.base.errors import LogboomError


@dataclass(slots=True)
class NatsMetrics:
    """Plain ints that only grow, or gauges where it says so."""

    connected: int = 0
    """Gauge: 1 while a server takes what this broker says, else 0."""
    connections: int = 0
    """Connections that were made, log-in included."""
    moves: int = 0
    """Connections that were left for one to another server, since theirs was about to end them; nothing is lost."""
    failed_connections: int = 0
    """Attempts that failed."""
    disconnects: Counter[str] = field(default_factory=Counter)
    """Connections that were lost, by what was the matter. Plain messages that were published meanwhile are lost."""
    errors: Counter[str] = field(default_factory=Counter)
    """Errors that servers told (-ERR), by kind."""
    reading_pauses: int = 0
    """Times that the connection was not read for a moment, because a limit was reached."""
    subscriptions: int = 0
    """Gauge: subscriptions that this broker holds or asks for."""
    received: int = 0
    """Messages."""
    received_bytes: int = 0
    """Payloads and headers of them."""
    stored: int = 0
    """Messages that were stored, duplicates not among them."""
    duplicates: int = 0
    """Messages that were stored before, by their ids."""
    refused: Counter[str] = field(default_factory=Counter)
    """Messages that were not stored and whose publisher was told so, by reason."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Messages that were not stored, and whose publisher asked for no answer, by reason."""
    unanswered: int = 0
    """Messages whose publisher got no answer, because it is not known whether another leader has stored them."""
    handovers: int = 0
    """Partitions for which the leader before this one was asked for what it had not stored, and has told."""
    failed_handovers: int = 0
    """Those for which it has not told in time. Plain messages of that moment may be lost."""
    handed_over: int = 0
    """Messages that were given to the next leader."""
    elsewhere: int = 0
    """Messages that another broker stores, since it leads their partition."""
    acks: int = 0
    """Answers that were sent, errors among them."""
    lost_acks: int = 0
    """Answers for which there was no connection."""
    service_requests: int = 0
    """Requests to recorded services."""
    service_replies: int = 0
    """Replies to them."""
    service_unanswered: int = 0
    """Requests to recorded services whose time was over without a reply."""
    service_forgotten: int = 0
    """Requests whose replies were not waited for any more, since the memory was needed for others."""
    inflight_bytes: int = 0
    """Gauge: memory of messages that have arrived and are not stored yet."""


def reason_of(error: LogboomError) -> str:
    """An error's kind as a word of metrics: `not_leader`."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
