"""What the processes of the first minutes load: what they do not need would be paid for at each start."""

import subprocess
import sys
from pathlib import Path

from tests.support.waiting import WAIT_S

DAEMON = """
import sys
import logboom.pipeline.run.daemon as daemon
daemon.decide_without_pandas()
import numpy as np, pyarrow as pa
pa.array(np.arange(3)), pa.array(["a"]), pa.RecordBatch.from_pylist([{"a": 1}])
"""
COMMAND = """
import sys
sys.argv = ["logboom", "pipeline", *sys.argv[1:]]
from logboom.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
PIPELINE = """
name: small
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email}]}
sinks: {out: {type: stream, inputs: [masked], stream: out}}
"""


def _loaded(program: str, *arguments: str) -> set[str]:
    """The top-level packages that a program has imported when it ends."""
    show = "\nprint('loaded', *{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run(
        [sys.executable, "-c", program + show, *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split()[1:])


def test_spark_s_python_workers_start_without_pandas_and_the_kafka_client() -> None:
    assert not _loaded(DAEMON) & {"pandas", "confluent_kafka", "hypothesis"}


def test_a_check_needs_neither_spark_s_python_nor_pandas(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(PIPELINE)
    assert not _loaded(COMMAND, "check", str(file)) & {"pandas", "pyspark", "confluent_kafka", "hypothesis"}


def test_what_is_not_run_on_spark_needs_no_pandas_either(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(PIPELINE)
    assert not _loaded(COMMAND, "graph", str(file)) & {"pandas", "pyspark"}
    lines = tmp_path / "lines"
    lines.write_text('{"a": 1}\n')
    assert not _loaded(COMMAND, "suggest", str(lines)) & {"pandas", "pyspark"}
