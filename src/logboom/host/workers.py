"""The Workers port on threads and processes of the operating system."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from logboom.host.helper import HelperProcess


class SystemWorkers:
    """Threads of this process."""

    __slots__ = ()

    def pool(self, name: str, threads: int) -> Executor:
        return ThreadPoolExecutor(threads, thread_name_prefix=name)

    def thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def mailbox(self) -> SimpleQueue[Any]:
        return SimpleQueue()

    def helper(self, work: str) -> HelperProcess:
        return HelperProcess(work)
