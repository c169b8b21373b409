"""What the partitions of one broker share: its threads, its books and its settings."""

from concurrent.futures import Executor
from typing import NamedTuple

from logboom.base.dynamic import Current
from logboom.base.ids import BrokerId
from logboom.base.ports import Clock
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.flusher import Flusher
from logboom.broker.disk.rejections import Lacks
from logboom.broker.metrics import Counters
from logboom.broker.partition.read_cache import SharedReads
from logboom.storage import OpenFiles


class Reach(NamedTuple):
    """What the partitions of one broker share."""

    broker_id: BrokerId
    clock: Clock
    flusher: Flusher
    readers: Executor
    counters: Counters
    lacks: Lacks
    config: Current[BrokerConfig]
    shared_reads: SharedReads
    open_files: OpenFiles
