"""What the partitions of one broker share: its threads, its books and its settings."""

from concurrent.futures import Executor
from typing import NamedTuple

from logboom.base.dynamic import Current
from logboom.base.ids import BrokerId
from logboom.base.ports import Clock
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.flusher import Flusher
from logboom.broker.disk.rejections import WriteRejections
from logboom.broker.metrics import Counters
from logboom.broker.partition.read_cache import ReadCache
from logboom.storage import OpenFiles


class PartitionServices(NamedTuple):
    """What the partitions of one broker share."""

    broker_id: BrokerId
    clock: Clock
    flusher: Flusher
    readers: Executor
    counters: Counters
    rejections: WriteRejections
    config: Current[BrokerConfig]
    read_cache: ReadCache
    open_files: OpenFiles
