"""What `bench pipeline --sink KEYS` takes of a delivery: the events that were noted, of sinks by requests alone."""

import subprocess
from pathlib import Path

import pytest

from logboom.bench.delivery import noted_batches, sink_type
from logboom.bench.router import PipelineProcess
from logboom.bench.wire import BenchError
from logboom.pipeline.sinks.bulk.progress import DeliveredOrigins, write_progress


def test_events_are_those_below_the_offsets_that_were_noted(tmp_path: Path) -> None:
    write_progress(tmp_path / "checkpoints" / "lines" / "measured", DeliveredOrigins(3, {"a web 0": 29, "a web 1": 19}))
    told: list[str] = []
    with subprocess.Popen(["true"], text=True) as ended:
        ended.wait()
        (batch,) = noted_batches(PipelineProcess(ended, tmp_path), None, told.append)
    assert batch.records == 50
    assert "up to batch 3: 50 events" in told[0]


def test_a_sink_is_named_by_its_keys() -> None:
    assert sink_type("type: clickhouse, url: 'http://127.0.0.1:8123', table: t") == "clickhouse"
    with pytest.raises(BenchError, match="did you mean 'webhook'"):
        sink_type("type: webhok, url: 'http://127.0.0.1:1'")
    with pytest.raises(BenchError, match="only sinks that send requests"):
        sink_type("type: console")
