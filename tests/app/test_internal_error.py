"""A node that ends on an internal error leaves the trace in its log: the sentence on the terminal has none."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.waiting import WAIT_S

_NODE: Final = """
import sys
from logboom.app import process
from logboom.app.config import NodeConfig
from logboom.base.errors import StorageError

async def live(*_):
    raise {error}

process._live = live
process.run_node(NodeConfig.model_validate({{"broker": {{"data_dir": sys.argv[1]}}}}), lambda _: None)
"""
"""In a process of its own: a node configures the log, the collection of garbage and the switching of threads."""


def _log_of(directory: Path, error: str) -> list[str]:
    """The lines of the log, without what Python says of a process that ends on an exception."""
    ended = subprocess.run(
        [sys.executable, "-c", _NODE.format(error=error), directory],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ended.returncode == 1
    return [line for line in ended.stderr.splitlines() if line.startswith("{")]


def test_the_trace_of_an_internal_error_is_in_the_log(tmp_path: Path) -> None:
    (line,) = _log_of(tmp_path, "AssertionError()")
    assert "this node ends on an internal error" in line
    assert "in live" in line


def test_an_error_that_is_foreseen_has_no_trace(tmp_path: Path) -> None:
    assert _log_of(tmp_path, "StorageError('the directory is in use')") == []
