"""A batch that may have ended the JVM is taken in smaller pieces, and so are those behind it that have large lines."""

import threading
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest

from logboom.base.units import MIB
from logboom.pipeline.checkpoint.ledger import EMPTY, Ledger
from logboom.pipeline.checkpoint.unfinished_starts import count_start
from logboom.pipeline.run.batch_memory import BatchMemory
from logboom.pipeline.run.delivery import Delivery
from logboom.pipeline.sinks.base import Delivered
from logboom.pipeline.sinks.console import ConsoleSink
from logboom.pipeline.spark.settings import ARROW_BYTES, SETTINGS

BATCH = 7
SLOTS, HEAP_MIB = 4, 512


SHORT = RuntimeError("org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer.")


class _Records:
    """Stands for Spark's DataFrame of a batch: one task for each partition."""

    def __init__(self, master: str = "local[4]", slots: int = SLOTS) -> None:
        self.session = self.sparkSession = MagicMock()
        self.session.sparkContext.master = master
        self.session.sparkContext.defaultParallelism = slots
        runtime = self.session.sparkContext._jvm.java.lang.Runtime.getRuntime.return_value
        runtime.maxMemory.return_value = HEAP_MIB * MIB
        self.tasks: int | None = None

    def coalesce(self, tasks: int) -> "_Records":
        self.tasks = tasks
        return self

    @property
    def bytes_max(self) -> int | None:
        """None where there is no limit."""
        name, value = self.session.conf.set.call_args.args
        assert name == ARROW_BYTES
        return None if value == SETTINGS[ARROW_BYTES] else int(value)


def ledger_with(records: int, bytes_in: int) -> Ledger:
    return Ledger(
        records_in={"web": records}, bytes_in=bytes_in, copies=0, out={}, bytes_out=0, dropped={}, dead={}, masked={}
    )


def bounded(memory: BatchMemory, batch: int, records: _Records | None = None) -> _Records:
    found = records or _Records()
    memory.bounded(found, batch)  # type: ignore[arg-type]
    return found


def test_the_same_batch_gets_less_with_each_start(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    seen = []
    for unfinished in (None, BATCH, BATCH, BATCH):
        memory = BatchMemory(path)
        memory.started(unfinished, None)
        records = bounded(memory, BATCH)
        seen.append((records.bytes_max, records.tasks))
    all_slots = HEAP_MIB * MIB // 16 // SLOTS
    assert seen == [(None, None), (all_slots, None), (all_slots, 1), (all_slots, 1)]


def test_another_batch_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    assert [count_start(path, batch) for batch in (3, 3, 4, None, 4)] == [1, 2, 1, 0, 2]


def test_large_lines_keep_the_limit_until_they_are_gone(tmp_path: Path) -> None:
    """The next batch of a backlog would end the next JVM."""
    memory = BatchMemory(tmp_path / "starts.json")
    memory.started(BATCH, None)
    assert bounded(memory, BATCH).bytes_max
    memory.ended(ledger_with(40, 40 * 9 * MIB))
    assert bounded(memory, BATCH + 1).bytes_max
    memory.ended(EMPTY)
    assert bounded(memory, BATCH + 2).bytes_max
    memory.ended(ledger_with(10_000, 10_000 * 500))
    assert bounded(memory, BATCH + 3).bytes_max is None


def test_a_start_knows_the_lines_of_the_batch_before(tmp_path: Path) -> None:
    memory = BatchMemory(tmp_path / "starts.json")
    memory.started(None, ledger_with(40, 40 * 9 * MIB))
    assert bounded(memory, BATCH).bytes_max


@pytest.mark.parametrize(("master", "slots", "wanted"), [("local[64]", 1_000, 1), ("spark://a:7077", 2, 64)])
def test_the_limit_is_neither_tiny_nor_the_drivers_on_a_cluster(
    tmp_path: Path, master: str, slots: int, wanted: int
) -> None:
    memory = BatchMemory(tmp_path / "starts.json")
    memory.started(BATCH, None)
    assert bounded(memory, BATCH, _Records(master, slots)).bytes_max == wanted * MIB


def delivery_to(writer: Mock, told: Mock, checkpoint: Path) -> Delivery:
    return Delivery(
        spark=Mock(),
        pipeline="shop",
        sink=ConsoleSink(name="out", line=1, inputs=("p",), attempts=1),
        edges={},
        admin=Mock(),
        checkpoint=checkpoint,
        writer=writer,
        stop=threading.Event(),
        on_delivered=told,
    )


def test_a_batch_that_a_delivery_had_begun_is_taken_by_one_task(tmp_path: Path) -> None:
    writer = Mock(**{"deliver.return_value": Delivered("out", BATCH)})
    delivery = delivery_to(writer, Mock(), tmp_path)
    delivery.unfinished = BATCH
    tasks = []
    for batch in (BATCH, BATCH + 1):
        records = _Records()
        delivery._deliver(records, batch)  # type: ignore[arg-type]
        tasks.append(records.tasks)
    assert tasks == [1, None]


def test_a_delivery_that_lacks_memory_takes_smaller_pieces_and_uses_up_no_attempt(tmp_path: Path) -> None:
    """A sink that took nothing is not to blame: its events would be dead letters."""
    given = Delivered("out", BATCH)
    writer, told = Mock(**{"deliver.side_effect": [SHORT, SHORT, given]}), Mock()
    delivery = delivery_to(writer, told, tmp_path)
    records = _Records()
    delivery._deliver(records, BATCH)  # type: ignore[arg-type]
    told.assert_called_once_with(given)
    limits = [int(call.args[1]) for call in records.session.conf.set.call_args_list]
    assert limits == [8 * MIB, 2 * MIB, MIB]
