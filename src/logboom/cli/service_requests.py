"""Requests on NATS for commands, over the connection that brokers use too.

Knows the connection and what services answer about themselves; nothing of streams.
"""

import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from logboom.base.subjects import overlap
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.cli.common import fail
from logboom.host import SystemClock, SystemIds
from logboom.nats.config import NatsConfig, split_server
from logboom.nats.link import commands
from logboom.nats.link.connection import ConnectionLostError
from logboom.nats.link.frames import Delivery
from logboom.nats.link.link import Link
from logboom.nats.metrics import NatsMetrics

_POLL_S: Final = 0.01
_SERVICES_MAX_S: Final = 2.0
_SERVICES_QUIET_S: Final = 0.3
"""Services that answer later than so long after the one before are not waited for."""
_NO_RESPONDERS: Final = b"NATS/1.0 503"


class Requester:
    """Asks, and gives each reply to who asked. Made by `requester`."""

    def __init__(self, link: Link, inbox: str) -> None:
        self._link = link
        self._inbox = inbox
        self._numbers = itertools.count()
        self._waiting: dict[bytes, asyncio.Queue[Delivery]] = {}
        link.subscribe(f"{inbox}.*", None, self._received)

    def _received(self, messages: Sequence[Delivery]) -> None:
        for message in messages:
            queue = self._waiting.get(message.subject)
            if queue is not None:
                queue.put_nowait(message)

    @contextlib.contextmanager
    def _asked(self, subject: str, header: bytes, payload: bytes) -> Iterator[asyncio.Queue[Delivery]]:
        reply = f"{self._inbox}.{next(self._numbers)}".encode()
        queue = self._waiting[reply] = asyncio.Queue()
        try:
            self._link.send(commands.request(subject.encode(), reply, header, payload))
            yield queue
        finally:
            del self._waiting[reply]

    async def is_connected(self, timeout_s: float) -> bool:
        """Whether there is a connection, at the latest after this time."""
        try:
            await asyncio.wait_for(self._link.up.wait(), timeout_s)
        except TimeoutError:
            return False
        return True  # it may be lost again by now, and back a moment later

    async def tell(self, subject: str, header: bytes, payload: bytes) -> bool:
        """Send what wants no reply; whether the server has certainly got it."""
        self._link.send(commands.request(subject.encode(), b"", header, payload))
        try:
            await self._link.round_trip()
        except ConnectionLostError:
            return False
        return True

    async def ask(self, subject: str, header: bytes, payload: bytes, timeout_s: float) -> Delivery | None:
        """The first reply; None where none came in time, or nobody takes requests on this subject."""
        with self._asked(subject, header, payload) as replies:
            try:
                reply = await asyncio.wait_for(replies.get(), timeout_s)
            except TimeoutError:
                return None
        return None if reply.header.startswith(_NO_RESPONDERS) else reply

    async def services(self) -> list[dict[str, Any]]:
        """What services that were made with the libraries of NATS say of themselves ($SRV.INFO, ADR-32)."""
        found = []
        with self._asked("$SRV.INFO", b"", b"") as replies, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SERVICES_MAX_S):
                while True:
                    reply = await asyncio.wait_for(replies.get(), _SERVICES_QUIET_S)
                    with contextlib.suppress(ValueError):
                        info = json.loads(reply.payload)
                        if isinstance(info, dict):
                            found.append(info)
        return found


@contextlib.asynccontextmanager
async def requester(url: str, credentials: Path | None) -> AsyncIterator[Requester]:
    """Somebody who asks at the NATS of this address. Ends the command where that does not answer."""
    try:
        for each in url.split(","):
            split_server(each.strip())
    except ValueError as error:
        fail(f"--nats {url}: {error}")
    config = NatsConfig.model_validate({"servers": url, "credentials_file": credentials})
    why: list[str] = []

    def keep(_: object, __: str, event: Any) -> Any:
        why[:] = [str(event.get("why") or event.get("event"))]
        raise structlog.DropEvent

    clock, ids = SystemClock(), SystemIds()
    log = RateLimitedLog(structlog.wrap_logger(None, processors=[keep]), clock, Counter())
    metrics = NatsMetrics()
    link = Link(config, "logboom-cli", ids=ids, log=log, metrics=metrics)
    link.start()
    try:
        while not link.is_up and metrics.failed_connections < len(config.servers):
            await asyncio.sleep(_POLL_S)
        if not link.is_up:
            fail(f"no NATS at {url}: {why[0] if why else 'it does not answer'}; name another with --nats")
        yield Requester(link, f"_INBOX.{ids.uuid().hex}")
    finally:
        await link.stop()


def responders(subject: str, services: Sequence[dict[str, Any]]) -> list[str]:
    """Which services say that they answer a subject: name, version, and how many instances of it there are.

    >>> responders("a.b", 2 * [{"name": "x", "version": "1.0.0", "endpoints": [{"subject": "a.*"}]}])
    ['x 1.0.0 (2)']
    """
    found: Counter[str] = Counter()
    for service in services:
        endpoints = service.get("endpoints")
        subjects = [each.get("subject") for each in endpoints or () if isinstance(each, dict)]
        if any(isinstance(pattern, str) and overlap(pattern, subject) for pattern in subjects):
            found[f"{service.get('name')} {service.get('version')}"] += 1
    return [f"{name} ({count})" for name, count in sorted(found.items())]
