"""An asyncio event loop on a thread of its own, beside the one that the process runs on."""

import asyncio
import threading
from contextlib import suppress
from typing import Final

_JOIN_S: Final = 2.0


class LoopThread:
    """Life: the loop runs when this is made, until `stop`. The thread does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def stop(self) -> None:
        """End the loop; callbacks that are ready still run. Waits for the thread, so not on an event loop."""
        with suppress(RuntimeError):  # closed already
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_JOIN_S)
