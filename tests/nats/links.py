"""Links to servers of NATS without a broker behind them."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import structlog
from tests.support.waiting import WAIT_S

from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.host import SystemClock, SystemIds
from logboom.nats.config import NatsConfig
from logboom.nats.link.link import Link
from logboom.nats.metrics import NatsMetrics


@contextlib.asynccontextmanager
async def linked(metrics: NatsMetrics, **settings: Any) -> AsyncIterator[Link]:
    """A link with these settings."""
    log = RateLimitedLog(structlog.get_logger(), SystemClock(), Counter())
    link = Link(NatsConfig(**settings), "test", ids=SystemIds(), log=log, metrics=metrics)
    link.start()
    try:
        yield link
    finally:
        await link.stop()


async def up(link: Link) -> None:
    """Return once it is connected."""
    async with asyncio.timeout(WAIT_S):
        while not link.is_up:
            await asyncio.sleep(0.01)
