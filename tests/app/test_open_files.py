"""A broker takes all the open files it may have, whatever the shell that starts it was content with."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import structlog
from structlog.testing import capture_logs

from logboom.app.config import NodeConfig
from logboom.app.process import _check_file_limit


def test_the_soft_limit_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    serve = [sys.executable, "-m", "logboom.cli", "serve", "--json", "--data", str(tmp_path / "data")]
    serve += ["--kafka", "127.0.0.1:0", "--http", "null"]
    shell = ["bash", "-c", 'ulimit -Sn 256 && exec "$@"', "bash", *serve]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(shell, stdout=subprocess.PIPE, stderr=log, text=True) as broker,
    ):
        try:
            assert broker.stdout is not None
            assert json.loads(broker.stdout.readline())["pid"] == broker.pid
            assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
        finally:
            broker.terminate()
    assert broker.returncode == 0
    assert "fewer open files" not in (tmp_path / "log").read_text()


def test_a_hard_limit_below_the_brokers_own_is_told() -> None:
    node = NodeConfig()
    with capture_logs() as logs:
        _check_file_limit(node, 1_024, structlog.get_logger())
        _check_file_limit(node, 65_536, structlog.get_logger())
        _check_file_limit(node, resource.RLIM_INFINITY, structlog.get_logger())
    assert [line["needed"] for line in logs] == [4_096 + 8_192 + 512]
