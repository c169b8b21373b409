"""What the router keeps on disk: pins, ledgers, ids; and the words it uses for streams."""

import json
from pathlib import Path

import pytest

from logboom.pipeline.checkpoint.batch_plans import BatchPlans, fingerprints
from logboom.pipeline.checkpoint.files import exclusive_lock
from logboom.pipeline.checkpoint.ledger import BalanceError, BatchLedgers, Ledger
from logboom.pipeline.checkpoint.owner import check_owner, claim, owner_of
from logboom.pipeline.checkpoint.stream_identity import check_ids
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import Plan, StreamSource
from logboom.pipeline.registry import read_plan
from logboom.pipeline.sinks.console import ConsoleSink
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


def _book(book: BatchLedgers, batch: int, ledger: Ledger) -> Ledger:
    return book.record(batch=batch, plan="x", started_at="now", duration_ms=1, ledger=ledger).total


def _plan(name: str) -> Plan:
    sink = ConsoleSink(name="out", line=1, inputs=("web",))
    source = StreamSource(name="web", line=1, streams=(name,))
    return Plan(name="p", file="f", checkpoint="c", sources=(source,), transforms=(), sinks=(sink,))


def test_a_batch_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    book = BatchLedgers(tmp_path)
    with pytest.raises(BalanceError, match="2 records are unaccounted for"):
        _book(book, 0, _ledger(10, 6, copies=1, dropped=2, dead=1))
    assert book.last() is None


def test_a_batch_that_ran_twice_counts_once(tmp_path: Path) -> None:
    _book(BatchLedgers(tmp_path), 0, _ledger(10, 10))
    _book(BatchLedgers(tmp_path), 1, _ledger(5, 5))
    total = _book(BatchLedgers(tmp_path), 1, _ledger(5, 4, dropped=1))
    assert (total.records_in, total.out, total.dropped) == ({"web": 15}, {"errors": 14}, {"clean": 1})


def test_a_batch_keeps_the_plan_it_was_pinned_to(tmp_path: Path) -> None:
    plans = BatchPlans(tmp_path, read_plan)
    assert plans.pinned(0) is None
    keys = {"env:SHOP_KEY": b"an old key of some length"}
    plans.pin(0, _plan("old"), keys, {"out": {"0": 7}}, is_last=True)
    pin = BatchPlans(tmp_path, read_plan).pinned(0)
    assert pin is not None
    assert (pin.plan, pin.plan_hash) == (_plan("old"), _plan("old").content_hash())
    assert (pin.ends, pin.generation, pin.keys) == ({"out": {"0": 7}}, 0, fingerprints(keys))
    assert pin.is_last, "a batch that runs again lets go of what transforms hold, as it did before"
    assert plans.last_name() == "p"
    assert not any(b"key of some" in path.read_bytes() for path in tmp_path.rglob("*.*"))


def test_a_pin_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    plans = BatchPlans(tmp_path, read_plan)
    plans.pin(3, _plan("old"), {}, {})
    path = tmp_path / "batches" / "3.json"
    path.write_text(json.dumps({"plan": json.loads(path.read_text())["plan"], "keys": {}}))
    pin = plans.pinned(3)
    assert pin is not None
    assert (pin.ends, pin.generation, pin.is_last) == (None, 0, False)


def test_a_checkpoint_belongs_to_one_pipeline(tmp_path: Path) -> None:
    assert owner_of(tmp_path, None) is None
    assert owner_of(tmp_path, "a") == "a"  # as a pin of an earlier version says
    claim(tmp_path, "a")
    assert owner_of(tmp_path, "b") == "a"
    assert not check_owner(tmp_path, "a", "a", None)
    with pytest.raises(PipelineError, match=r"belongs to the pipeline a, not to b: .* add --renamed-from a"):
        check_owner(tmp_path, "a", "b", None)
    with pytest.raises(PipelineError, match="belongs to the pipeline a"):
        check_owner(tmp_path, "a", "b", "c")
    with pytest.raises(PipelineError, match="has never been used"):
        check_owner(tmp_path, None, "b", "a")
    assert check_owner(tmp_path, "a", "b", "a")
    claim(tmp_path, "b")
    assert not check_owner(tmp_path, owner_of(tmp_path, None), "b", "a"), "the option may stay on the command line"


def test_a_stream_that_was_made_again_stops_the_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "streams.json"
    check_ids(path, {"web": "a"})
    check_ids(path, {"web": "a", "more": "b"})
    with pytest.raises(PipelineError, match="stream web was deleted and recreated"):
        check_ids(path, {"web": "c"})


def test_a_checkpoint_has_one_user_at_a_time(tmp_path: Path) -> None:
    taken = pytest.raises(PipelineError, match="in use by another process")
    with exclusive_lock(tmp_path / "lock", "it"), taken, exclusive_lock(tmp_path / "lock", "it"):
        pass
    with exclusive_lock(tmp_path / "lock", "it"):
        pass


def test_the_connector_is_pinned() -> None:
    pinned = [str(one) for one in coordinates()]
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0" in pinned
    assert len(pinned) == 4
