"""Which version of its tables a batch used: the ledger says it for every batch, while tables change beside the run."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import Said, make_stream, needs_java, publish, records
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.run.runner import Runner, RunOptions

pytestmark = [pytest.mark.spark, needs_java]

FILE = """
name: looked-up
checkpoint: ./checkpoint
batch: {max_records: 20, interval: 100ms}
sources:
  web: {type: stream, stream: looked-up-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  named:
    type: enrich
    inputs: [parsed]
    table: {type: csv, path: teams.csv, key: service}
    on: service
    fields: {team: attributes.team}
  priced:
    type: enrich
    inputs: [named]
    table: {type: json, path: prices.json}
    on: service
    fields: {price: attributes.price}
sinks:
  out: {type: stream, inputs: [priced], stream: looked-up-out}
"""
LINES = 50


@contextmanager
def _running(spark: Any, file: Path, broker: BrokerProcess) -> Iterator[None]:
    runner = Runner(compile_pipeline(FILE, str(file)), RunOptions(bootstrap=broker.kafka), Said())
    thread = threading.Thread(target=runner.run_in, args=(spark,))
    thread.start()
    try:
        yield
    finally:
        runner.stop()
        thread.join(WAIT_S)


def _replaced(path: Path, text: str) -> None:
    """In one step, as a table is replaced beside a run that may read it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def test_the_ledger_of_each_batch_names_the_versions_of_its_tables(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    """One table changes and later is what it was; the other stays. Events have what the named version says."""
    make_stream(broker.kafka, "looked-up-web", 1)
    file, checkpoint = tmp_path / "looked-up.yaml", tmp_path / "checkpoint"
    file.write_text(FILE)
    (tmp_path / "prices.json").write_text('{"shop": {"price": 7}}')
    entries: list[dict[str, Any]] = []

    def entries_now() -> list[dict[str, Any]]:
        paths = sorted((checkpoint / "ledger").glob("*.json"), key=lambda path: int(path.stem))
        return [json.loads(path.read_text()) for path in paths]

    def batches_with(team: str) -> list[dict[str, Any]]:
        """The ledgers of what comes while the table says this, in several batches."""
        _replaced(tmp_path / "teams.csv", f"service,team\nshop,{team}\n")
        publish(broker.kafka, "looked-up-web", [b'{"service": "shop"}'] * LINES, 1)
        taken = sum(entry["ledger"]["records_in"]["web"] for entry in entries) + LINES
        until(lambda: sum(one["ledger"]["records_in"]["web"] for one in entries_now()) == taken, "all are taken")
        found = entries_now()[len(entries) :]
        entries.extend(found)
        return found

    with _running(spark, file, broker):
        phases = [batches_with(team) for team in ("red", "blue", "red")]

    assert all(len(phase) >= LINES // 20 + 1 for phase in phases), "each phase is several batches"
    assert [set(entry["tables"]) for entry in entries] == [{"table:named", "table:priced"}] * len(entries)
    teams = [{entry["tables"]["table:named"] for entry in phase} for phase in phases]
    assert [len(versions) for versions in teams] == [1, 1, 1], "all batches of one phase name one version"
    assert teams[0] == teams[2] != teams[1], "another version where the table is another, and by what it holds alone"
    assert len({entry["tables"]["table:priced"] for entry in entries}) == 1, "the table beside it stays"

    for entry, team in ((phases[0][0], "red"), (phases[1][0], "blue")):
        held = (checkpoint / "tables" / "named" / entry["tables"]["table:named"]).read_bytes()
        assert json.loads(held) == {"shop": {"team": team}}
        assert hashlib.sha256(held).hexdigest().startswith(entry["tables"]["table:named"])
    events = [json.loads(message.value()) for message in records(broker.kafka, "looked-up-out")]
    said = [event["attributes"]["team"] for event in sorted(events, key=lambda event: event["offset"])]
    assert said == ["red"] * LINES + ["blue"] * LINES + ["red"] * LINES
    assert {event["attributes"]["price"] for event in events} == {7}
