"""Waiting for the controller within requests that clients expect to be answered at once.

Requests of administrators wait as long as `command_timeout_ms` says. These do not: Metadata, FindCoordinator and
InitProducerId stand in the way of what a producer or consumer asks next on the same connection, its heartbeats among
it, and its client has errors for "not now" that it asks again for.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from logboom.base.errors import OutcomeUnknownError

WAIT_S: Final = 2.0
"""Usually long enough for the election of a controller, and far below the timeout of clients."""

Result = TypeVar("Result")


async def briefly(work: Awaitable[Result]) -> Result:
    """The result of a change of the metadata. Raises OutcomeUnknownError where it takes longer than `WAIT_S`: it goes
    on if the controller has begun it; and what `work` raises."""
    try:
        async with asyncio.timeout(WAIT_S):
            return await work
    except TimeoutError:
        raise OutcomeUnknownError("the controller has not answered yet; the change may still be made") from None
