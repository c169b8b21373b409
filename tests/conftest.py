"""The order of the tests, and which of them share a worker.

With two workers the run takes as long as the busier one. Tests that share a Spark session run on one worker, so that
one JVM is started for all of them; what takes longest is begun first, so that no long test is left for the end.
"""

import os
import sys

import pytest

# The suite starts hundreds of interpreters. Where the environment forbids them to keep compiled modules, as it does in
# many containers, each compiles Logboom anew, which takes as long as most of the commands that they run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_LONGEST = (
    "tests/docs/test_demo.py",
    "tests/pipeline/test_kill.py",
    "tests/clients/test_spark.py",
    "tests/docs/test_pages.py",
    "tests/faults/",
    "tests/pipeline/",
    "tests/bench/",
)
"""Files and directories whose tests take seconds, the longest first."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Here, since pytest-xdist reads the groups before other plugins see the list of tests."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("spark session"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)  # stable: within a rank the order stays random


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, start in enumerate(_LONGEST) if item.nodeid.startswith(start)), len(_LONGEST))
