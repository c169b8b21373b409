"""A manager of clusters (YARN, Kubernetes) as a process of a test, and what a router on either of them is given."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.pipeline.support import archive_ids, header, records
from tests.support.commands import run_logboom
from tests.support.waiting import WAIT_S, until

PIPELINE: Final = """
name: {name}
checkpoint: ./checkpoint
batch: {{max_records: 300, interval: 100ms}}
sources:
  web: {{type: stream, stream: {name}-web}}
transforms:
  parsed: {{type: parse, inputs: [web], rules: [{{format: json}}]}}
  masked: {{type: mask, inputs: [parsed], rules: [{{kind: email, action: redact}}]}}
sinks:
  out: {{type: stream, inputs: [masked], stream: {name}-out}}
  archive: {{type: parquet, inputs: [masked], path: ./archive}}
"""


@contextmanager
def cluster_manager(command: Sequence[str], log: Path, what: str) -> Iterator[str]:
    """Runs the manager, which says `ready` and ends, with all that it started, when its input does; that line of it."""
    with log.open("wb") as out, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out) as cluster:
        try:
            until(lambda: "ready" in log.read_text() or cluster.poll() is not None, what, every_s=0.5)
            assert cluster.poll() is None, log.read_text()[-3_000:]
            yield next(line for line in log.read_text().splitlines() if "ready" in line)
        finally:
            assert cluster.stdin is not None
            cluster.stdin.close()
            try:
                cluster.wait(WAIT_S)
            finally:
                cluster.kill()


def router_arguments(master: str, directory: Path, settings: Mapping[str, str]) -> list[str]:
    """With an environment that is packaged for the executors."""
    environment = directory / "environment.tar.gz"
    done = run_logboom(["pipeline", "package", "--out", str(environment)], timeout_s=WAIT_S)
    assert done.returncode == 0, done.stderr
    given = {"spark.executor.instances": "1", "spark.executor.memory": "512m", **settings}
    spark = [part for name, value in given.items() for part in ("--spark", f"{name}={value}")]
    return ["--master", master, "--environment", str(environment), *spark]


def lines(begin: int, count: int) -> list[bytes]:
    """Lines with something to mask."""
    return [json.dumps({"msg": f"mail to a{number}@example.com"}).encode() for number in range(begin, begin + count)]


def check_delivered(bootstrap: str, name: str, count: int, archive: Path) -> None:
    """Each of so many lines, published in turn to two partitions, is in the stream, masked, and once in the archive."""
    wanted = {f"{name}-web:{number % 2}:{number // 2}" for number in range(count)}
    found = records(bootstrap, f"{name}-out")
    assert {header(one, "logboom-event-id") for one in found} == wanted
    assert all(json.loads(one.value() or b"")["body"] == "mail to [email]" for one in found)
    assert archive_ids(archive) == Counter(wanted)
