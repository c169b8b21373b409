"""What `bench pipeline --sink parquet` takes out of an archive: each batch once, with the rows of its manifest."""

import subprocess
from pathlib import Path

from logboom.bench import archive as bench_archive
from logboom.bench.router import PipelineProcess
from logboom.pipeline.sinks.parquet.archive import HIDDEN, Archive
from logboom.pipeline.sinks.parquet.staging import Report


def test_batches_are_those_of_the_manifests(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive", "me")
    for number, rows in enumerate((30, 20)):
        archive.commit(number, [Report(rows=rows)])
    assert len(list((tmp_path / "archive" / HIDDEN / "manifests" / "me").iterdir())) == 2
    told: list[str] = []
    with subprocess.Popen(["true"], text=True) as ended:
        ended.wait()
        batches = list(bench_archive.delivery_batches(PipelineProcess(ended, tmp_path), None, told.append))
    assert [batch.records for batch in batches] == [30, 20]
    assert len(told) == 2
    assert batches[1].took_ms >= 0
