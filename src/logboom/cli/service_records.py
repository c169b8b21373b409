"""Requests and replies of recorded services, as they are read from a stream: pairs of them, and figures of many.

Knows the records' headers (`nats.wire.recording`); no connection and no terminal.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Message

from logboom.cli.reading import headers_of

_OWN: Final = "logboom-"
_ERROR: Final = ("Nats-Service-Error-Code", "Nats-Service-Error")
"""How services of the NATS project's libraries tell that they failed (ADR-32)."""
_US_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request, or a reply."""

    is_reply: bool
    subject: str
    """Of the request."""
    reply: bytes | None
    """The reply subject: what the two have in common. None where no answer was wanted."""
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    """Those of its sender."""
    timestamp_ms: int
    took_us: int | None
    """Of a reply: how long it took."""
    partition: int
    """A request and its replies are in the same."""

    @property
    def error(self) -> str | None:
        """What a service says of its failure."""
        errors = [value.decode("utf-8", "replace") for name in _ERROR for each, value in self.headers if each == name]
        return " ".join(errors) or None


def recorded(message: Message) -> Recorded | None:
    """What a record is of a service; None where it is none."""
    headers = [(name, _bytes(value)) for name, value in headers_of(message)]
    own = dict(headers)
    kind = own.get("logboom-kind")
    if kind is None or "logboom-subject" not in own:
        return None
    took = own.get("logboom-took-us")
    return Recorded(
        kind == b"reply",
        own["logboom-subject"].decode("utf-8", "replace"),
        own.get("logboom-reply"),
        message.value() or b"",
        tuple((name, value) for name, value in headers if not name.startswith(_OWN)),
        message.timestamp()[1],
        None if took is None else int(took),
        message.partition() or 0,
    )


def _bytes(value: bytes | str | None) -> bytes:
    return b"" if value is None else value.encode() if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with its reply; the first where there are several."""

    request: Recorded
    reply: Recorded | None


class Pairs:
    """Puts requests and replies together, as they are read. A request without a reply is given up once a record of its
    partition is read that is so much younger."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._open: defaultdict[int, dict[bytes, Recorded]] = defaultdict(dict)
        """By partition and reply subject, in the order of the partition."""

    def add(self, one: Recorded) -> Iterator[Exchange]:
        """Exchanges that are complete by this record."""
        waiting = self._open[one.partition]
        yield from self._given_up(waiting, one.timestamp_ms)
        if one.reply is None:
            yield Exchange(one, None)
        elif not one.is_reply:
            before = waiting.pop(one.reply, None)
            if before is not None:
                yield Exchange(before, None)
            waiting[one.reply] = one
        elif (request := waiting.pop(one.reply, None)) is not None:
            yield Exchange(request, one)

    def rest(self) -> Iterator[Exchange]:
        """Those whose replies were not read."""
        for waiting in self._open.values():
            yield from (Exchange(request, None) for request in waiting.values())
        self._open.clear()

    def _given_up(self, waiting: dict[bytes, Recorded], now_ms: int) -> Iterator[Exchange]:
        while waiting:
            reply, oldest = next(iter(waiting.items()))
            if now_ms - oldest.timestamp_ms <= self._wait_ms:
                return
            del waiting[reply]
            yield Exchange(oldest, None)


@dataclass(slots=True)
class Figures:
    """Of one subject."""

    requests: int = 0
    replies: int = 0
    one_way: int = 0
    """Requests that wanted no answer."""
    errors: int = 0
    took_us: list[int] = field(default_factory=list)

    @property
    def unanswered(self) -> int:
        """Requests that wanted a reply of which none was recorded."""
        return self.requests - self.one_way - self.replies

    def add(self, exchange: Exchange) -> None:
        """Count one."""
        self.requests += 1
        if exchange.request.reply is None:
            self.one_way += 1
        elif exchange.reply is not None:
            self.replies += 1
            self.errors += exchange.reply.error is not None
            self.took_us.append(exchange.reply.took_us or 0)


def figures_of(exchanges: Iterable[Exchange]) -> dict[str, Figures]:
    """By subject, in alphabetical order."""
    found: dict[str, Figures] = {}
    for exchange in exchanges:
        found.setdefault(exchange.request.subject, Figures()).add(exchange)
    return dict(sorted(found.items()))


def percentiles_ms(took_us: list[int]) -> dict[str, float | None]:
    """p50, p99 and max in milliseconds: the smallest value that so many do not exceed.

    >>> percentiles_ms([3_000, 1_000, 2_000])
    {'p50_ms': 2.0, 'p99_ms': 3.0, 'max_ms': 3.0}
    """
    if not took_us:
        return {"p50_ms": None, "p99_ms": None, "max_ms": None}
    ordered = sorted(took_us)

    def at(percent: int) -> float:
        return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] / _US_MS

    return {"p50_ms": at(50), "p99_ms": at(99), "max_ms": at(100)}
