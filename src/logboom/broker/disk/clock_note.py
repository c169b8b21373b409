"""The note of what time it was last, by the clock of this machine as far as it could be believed (`settled_clock`).

A process that starts would otherwise have to take the wall clock as it is. The note is replaced every few minutes, and
durable: after a power failure the clock may be wrong for the same reason. An old note only means that a longer time has
passed, and a missing or corrupt one counts as none.
"""

import asyncio
from struct import Struct
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.ports import Disk
from logboom.broker.disk.data_dir import CLOCK_FILE
from logboom.broker.settled_clock import NotedTime, SettledClock
from logboom.storage import frame, read_whole, replace_whole, unframe

_TAG: Final = b"LBWC"
_VERSION: Final = 1
_NOTE: Final = Struct(">qd")
_EVERY_S: Final = 300.0


def load(disk: Disk, log: FilteringBoundLogger) -> NotedTime | None:
    """What was noted last; nothing where it cannot be read."""
    try:
        data = read_whole(disk, CLOCK_FILE) or b""
    except OSError as error:
        log.warning("the noted time is not read", reason=str(error))
        return None
    payload = unframe(_TAG, _VERSION, data)
    return None if payload is None or len(payload) != _NOTE.size else NotedTime(*_NOTE.unpack(payload))


def save(disk: Disk, clock: SettledClock) -> None:
    """Replace the note. Raises OSError."""
    replace_whole(disk, ".", CLOCK_FILE, frame(_TAG, _VERSION, _NOTE.pack(*clock.noted())), sync=True)


async def resume(disk: Disk, clock: SettledClock, log: FilteringBoundLogger) -> None:
    """Let the clock go on from the note. Before anything ages by it."""
    noted = await asyncio.to_thread(load, disk, log)
    if noted is not None:
        clock.resume(noted)
    await try_save(disk, clock, log)


async def keep_noted(disk: Disk, clock: SettledClock, log: FilteringBoundLogger) -> None:
    """Replace the note every few minutes. Runs until it is cancelled."""
    while True:
        await asyncio.sleep(_EVERY_S)
        await try_save(disk, clock, log)


async def try_save(disk: Disk, clock: SettledClock, log: FilteringBoundLogger) -> None:
    """Replace the note, unless the disk does not take it."""
    try:
        await asyncio.to_thread(save, disk, clock)
    except OSError as error:
        log.warning("the time is not noted", reason=str(error))
