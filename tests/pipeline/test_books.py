"""What the router keeps on disk: pins, ledgers, ids; and the words it uses for streams."""

from collections.abc import Callable
from pathlib import Path

import pytest

from logboom.pipeline.checkpoint.batch_plans import KeyChangedError, PinBook
from logboom.pipeline.checkpoint.files import only_one
from logboom.pipeline.checkpoint.ledger import BalanceError, Ledger, LedgerBook
from logboom.pipeline.checkpoint.stream_identity import check_ids
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import KeyRef, Plan, StreamSource
from logboom.pipeline.sinks.console import ConsoleSink
from logboom.pipeline.sinks.registry import read_plan
from logboom.pipeline.spark.jars import coordinates


def _ledger(records_in: int, out: int, *, copies: int = 0, dropped: int = 0, dead: int = 0) -> Ledger:
    return Ledger(
        records_in={"web": records_in},
        bytes_in=10 * records_in,
        copies=copies,
        out={"errors": out},
        bytes_out=0,
        dropped={"clean": dropped},
        dead={"parsed": dead},
        masked={},
    )


def _book(book: LedgerBook, batch: int, ledger: Ledger) -> Ledger:
    return book.record(batch=batch, plan="x", started_at="now", duration_ms=1, ledger=ledger).total


def _no_keys(refs: tuple[KeyRef, ...]) -> dict[str, bytes]:
    return {}


def _plan(name: str) -> Plan:
    sink = ConsoleSink(name="out", line=1, inputs=("web",))
    source = StreamSource(name="web", line=1, streams=(name,))
    return Plan(name="p", file="f", checkpoint="c", sources=(source,), transforms=(), sinks=(sink,))


def test_a_batch_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    book = LedgerBook(tmp_path)
    with pytest.raises(BalanceError, match="2 records are unaccounted for"):
        _book(book, 0, _ledger(10, 6, copies=1, dropped=2, dead=1))
    assert book.last() is None


def test_a_batch_that_ran_twice_counts_once(tmp_path: Path) -> None:
    _book(LedgerBook(tmp_path), 0, _ledger(10, 10))
    _book(LedgerBook(tmp_path), 1, _ledger(5, 5))
    total = _book(LedgerBook(tmp_path), 1, _ledger(5, 4, dropped=1))
    assert (total.records_in, total.out, total.dropped) == ({"web": 15}, {"errors": 14}, {"clean": 1})


def test_a_batch_keeps_the_plan_it_was_pinned_to(tmp_path: Path) -> None:
    assert PinBook(tmp_path, read_plan).pin(0, _plan("old"), _no_keys) == _plan("old")
    again = PinBook(tmp_path, read_plan)
    assert again.pin(0, _plan("new"), _no_keys).sources == _plan("old").sources
    assert again.pin(1, _plan("new"), _no_keys).sources == _plan("new").sources


def test_a_batch_does_not_run_again_with_another_mask_key(tmp_path: Path) -> None:
    def keys(secret: bytes) -> Callable[[tuple[KeyRef, ...]], dict[str, bytes]]:
        return lambda refs: {"env:SHOP_KEY": secret}

    old, new = keys(b"an old key of some length"), keys(b"a new key of some length")
    PinBook(tmp_path, read_plan).pin(0, _plan("s"), old)
    assert PinBook(tmp_path, read_plan).pin(0, _plan("s"), old) == _plan("s")
    with pytest.raises(KeyChangedError, match="batch 0 began with another mask key in SHOP_KEY"):
        PinBook(tmp_path, read_plan).pin(0, _plan("s"), new)
    assert PinBook(tmp_path, read_plan).pin(1, _plan("s"), new) == _plan("s")
    assert not any(b"key of some" in path.read_bytes() for path in tmp_path.rglob("*.*"))


def test_a_stream_that_was_made_again_stops_the_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "streams.json"
    check_ids(path, {"web": "a"})
    check_ids(path, {"web": "a", "more": "b"})
    with pytest.raises(PipelineError, match="stream web was deleted and made again"):
        check_ids(path, {"web": "c"})


def test_a_checkpoint_has_one_user_at_a_time(tmp_path: Path) -> None:
    taken = pytest.raises(PipelineError, match="in use by another process")
    with only_one(tmp_path / "lock", "it"), taken, only_one(tmp_path / "lock", "it"):
        pass
    with only_one(tmp_path / "lock", "it"):
        pass


def test_the_connector_is_pinned() -> None:
    pinned = [str(one) for one in coordinates()]
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0" in pinned
    assert len(pinned) == 4
