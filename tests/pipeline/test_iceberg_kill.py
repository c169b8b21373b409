"""The sink `iceberg` in a whole pipeline: kill -9 of the router around its commits, read back by Iceberg for Java."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from tests.clients.drivers import DriverMissingError, iceberg_reader
from tests.pipeline.support import RouterProcess, make_stream, needs_java, publish
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.sinks.iceberg.hadoop_catalog import HadoopCatalog

pytestmark = [pytest.mark.spark, needs_java, pytest.mark.slow]

PIPELINE = """
name: icy
sources: {web: {type: stream, stream: icy-web}}
transforms: {parsed: {type: parse, inputs: [web], rules: [{format: json}]}}
sinks:
  lake: {type: iceberg, inputs: [parsed], path: ./lake, table: logs.events, interval: 1s, on_failure: retry}
"""


def _batches(root: Path) -> int:
    """How many commits with events the table has."""
    try:
        return len(HadoopCatalog(root / "lake").load_table("logs.events").metadata.snapshots)
    except NoSuchTableError:
        return 0


def _files(root: Path) -> int:
    return len(list(root.glob("lake/logs/events/data/**/*.parquet")))


def test_a_router_that_is_killed_around_a_commit_loses_and_repeats_nothing(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "icy-web", 2)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        lines = [json.dumps({"msg": f"n {number}"}).encode() for number in range(sent, sent + count)]
        publish(broker.kafka, "icy-web", lines, 2)
        sent += count

    for moment in ("commit", "files", "commit"):
        with RouterProcess(file, broker.kafka) as router:
            before = _batches(tmp_path)
            send(2_000)
            until(lambda before=before: _batches(tmp_path) > before, "a batch")  # type: ignore[misc]
            batches, files = _batches(tmp_path), _files(tmp_path)
            send(2_000)
            if moment == "commit":
                until(
                    lambda batches=batches: _batches(tmp_path) > batches,  # type: ignore[misc]
                    "a commit",
                    every_s=0.002,
                )
            else:
                until(lambda files=files: _files(tmp_path) > files, "a file", every_s=0.002)  # type: ignore[misc]
            router.kill9()
    with RouterProcess(file, broker.kafka, "--once") as router:
        assert router.wait() == 0
    expected = Counter({f"icy-web:{number % 2}:{number // 2}": 1 for number in range(sent)})
    table = HadoopCatalog(tmp_path / "lake").load_table("logs.events")
    assert Counter(table.scan().to_arrow().column("event_id").to_pylist()) == expected
    with skipped_on(DriverMissingError):
        reader = iceberg_reader()
    said = subprocess.run(
        [*reader, str(tmp_path / "lake" / "logs" / "events")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-2_000:]
    *rows, last = said.stdout.splitlines()
    assert Counter(row.split("\t")[0] for row in rows) == expected
    assert last == f"snapshots\t{len(table.metadata.snapshots)}"
