"""Work that the controller does again and again, as long as this broker is it.

Life: that of the broker, from `start` to `stop`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError


class ControllerLoop:
    """See the module. On the loop."""

    def __init__(
        self,
        name: str,
        interval_s: float,
        serving: Callable[[], bool],
        *,
        work: Callable[[], Awaitable[None]],
        idle: Callable[[], None],
        log: FilteringBoundLogger,
    ) -> None:
        """Every `interval_s` seconds `work` is called if this broker is the controller (`serving`), else `idle`. A
        LogboomError of `work` is logged under `name`, and `work` is called again after the interval."""
        self._name = name
        self._interval_s = interval_s
        self._serving = serving
        self._work = work
        self._idle = idle
        self._log = log
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """End; returns once nothing of it runs any more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if not self._serving():
                self._idle()
                continue
            try:
                await self._work()
            except LogboomError as error:
                self._log.warning(f"{self._name} is late", reason=str(error))
