"""The health of this broker: what is offline, what the disk does, and why the broker is not ready.

Reads what other parts know and changes nothing. Asked by `/readyz`, `/metrics` and DescribeLogDirs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError, StorageError
from logboom.base.ports import Disk
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.flusher import Flusher
from logboom.broker.disk.log_dir import LogDirState, log_dir_state
from logboom.broker.disk.log_manager import PartitionKey
from logboom.broker.partition.reader_threads import ReaderThreads
from logboom.broker.replicas import Replicas

_NAMED_MAX: Final = 10
"""Partitions that one sentence names."""


class Health:
    """See the module."""

    def __init__(
        self,
        replicas: Replicas,
        flusher: Flusher,
        readers: ReaderThreads,
        disk: Disk,
        log_dir: Path,
        config: Current[BrokerConfig],
    ) -> None:
        self._replicas = replicas
        self._flusher = flusher
        self._readers = readers
        self._disk = disk
        self._log_dir = log_dir
        self._config = config

    @property
    def log_dir_failure(self) -> StorageError | None:
        """Why the log dir takes no more writes, if so. Does not ask the disk, which may hang."""
        return self._flusher.failure

    @property
    def log_dir_path(self) -> str:
        """The name by which clients know the log dir: its absolute path."""
        return str(self._log_dir.absolute())

    def log_dir(self) -> LogDirState:
        """The state of the one log dir. Asks the file system, which may hang: call it off the loop."""
        return log_dir_state(self._disk, self._log_dir, self._flusher.failure)

    @property
    def read_busy_s(self) -> float:
        """Seconds for which the oldest read from the disk has been running; 0 where none is."""
        return self._readers.busy_s

    @property
    def disk_busy_s(self) -> float:
        """Seconds for which the oldest operation on the disk, a write, a sync or a read, has not ended."""
        return max(self._flusher.busy_s, self._readers.busy_s)

    @property
    def flush_busy_s(self) -> float:
        """Seconds for which the flusher has been at one group commit or job; 0 where it waits for work."""
        return self._flusher.busy_s

    def offline(self) -> Mapping[PartitionKey, LogboomError]:
        """Partitions that take no appends, each with its reason."""
        return self._replicas.offline()

    def unready_reason(self) -> str | None:
        """One sentence about what this broker should serve and does not; None if it serves everything."""
        if self.log_dir_failure is not None:
            return str(self.log_dir_failure)
        if (stalled_s := self._flusher.busy_s) >= self._config.now.disk_hang_s:
            return f"the disk hangs: a write or sync that began {stalled_s:.0f} s ago has not ended; reads continue"
        if (stalled_s := self._readers.busy_s) >= self._config.now.disk_hang_s:
            return f"the disk hangs: a read that began {stalled_s:.0f} s ago has not ended"
        offline = self._replicas.offline()
        if not offline:
            return None
        named = ", ".join(f"{name}-{index}" for name, index in sorted(offline)[:_NAMED_MAX])
        more = f" and {len(offline) - _NAMED_MAX} more" if len(offline) > _NAMED_MAX else ""
        return f"offline: {named}{more}; all others are served. {offline[min(offline)]}"
