"""The Workers port on threads and processes of the operating system."""

import resource
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import count
from queue import SimpleQueue
from typing import Any, Final

from logboom.host.helper import HelperProcess

_UNKNOWN: Final = count()


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

    def waits(self) -> int:
        if sys.platform != "linux":
            return next(_UNKNOWN)
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw  # voluntary context switches: getrusage(2)

    def helper(self, work: str) -> HelperProcess:
        return HelperProcess(work)
