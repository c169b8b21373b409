"""What the tests' processes start with, the order of the tests, and which of them share a worker.

Tests that share a Spark session run on one worker, so that one JVM is started for all of them; so do the tests of a
module that share a broker. What takes longest begins first, so that no long test is left for the end, when the other
workers have nothing to do.
"""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support.forked_workers import fork_workers
from tests.support.jvm_options import JVM_OPTIONS
from tests.support.spark_jvms import SparkJvms
from tests.support.thoroughness import THOROUGH, TURN, fewer_examples, in_turn

# The suite starts hundreds of interpreters. Where the environment forbids them to keep compiled modules, as it does in
# many containers, each compiles Logboom anew, which takes as long as most of the commands that they run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# kio loads hypothesis wherever that is installed. What this works out takes a second; it keeps that in the directory in
# which a process runs, and for many tests that is a new one.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).parent.parent / ".hypothesis"))
os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)

# How long an example takes says nothing on a busy machine, where a process may stand still for seconds.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

_FAILED = os.environ.get("LOGBOOM_TEST_FAILED")
"""The file that is to have the names of tests that failed, one a line."""
_SETTINGS_OF_A_PROPERTY = "_hypothesis_internal_use_settings"
"""Where hypothesis 6 keeps the settings of a test; without it the tests would do all of their examples."""
_GARBAGE_THRESHOLDS = (10_000, 20, 50)
"""By default 700, 10, 10 in Python 3.11."""
_SPARK_SESSION = "spark session"
_SPARK_JVMS = "spark jvms"
_STARTED_FOR_A_MODULE = {"broker", "cluster", "tool", "asked_once", "verdicts", "environment"}
"""Fixtures that start processes, once for all tests of a module, or pack an environment, which takes as long."""
_LONGEST = (
    "tests/docs/test_demo.py",
    _SPARK_SESSION,
    "tests/pipeline/test_kill.py",
    "tests/clients/",
    "tests/faults/",
    "tests/docs/test_pages.py",
    "tests/pipeline/",
    "tests/cli/test_cluster_",
    "tests/broker/test_raft_lives.py",
    "tests/bench/",
    "tests/sim/",
)
"""Files, directories and groups whose tests take seconds, the longest first."""


@pytest.fixture(scope="session")
def spark_jvms() -> Iterator[SparkJvms]:
    """JVMs for routers that are processes of their own."""
    with SparkJvms() as made:
        yield made


def pytest_report_header() -> list[str]:
    return [f"tests that take turns: LOGBOOM_TEST_TURN={TURN} does the same cases again"] if TURN >= 0 else []


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All modules and tests stay to the end: no collection of garbage, now or in any test, need look at them. What
    tests make is looked at less often than by default, too: that takes a tenth of their CPU time. Commands and brokers
    that are processes of their own have what users have."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(*_GARBAGE_THRESHOLDS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    fork_workers(config.args)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Here, since pytest-xdist reads the groups before other plugins see the list of tests."""
    if _shares_session(item):
        item.add_marker(pytest.mark.xdist_group(_SPARK_SESSION))
    elif "spark_jvms" in _fixtures(item):
        item.add_marker(pytest.mark.xdist_group(_SPARK_JVMS))
    elif _fixtures(item) & _STARTED_FOR_A_MODULE and item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # pytest-xdist 3.8 tells its scheduler the group of a test by a suffix of `_nodeid`, from which pytest 9.2 does
        # not take the id of a test any more: without this, the tests of one group go to all workers.
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid:
            from _pytest.nodeid import NodeId  # earlier versions have none, and do not come here

            item._id = NodeId.parse(grouped)
    if not THOROUGH:
        _shorten(items)
    if TURN >= 0 and not THOROUGH:
        _leave_to_other_turns(config, items)
    items.sort(key=_rank)  # stable: within a rank the order stays random


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _FAILED and report.failed:
        group = item.get_closest_marker("xdist_group")
        name = item.nodeid if group is None else item.nodeid.removesuffix(f"@{group.args[0]}")
        with open(_FAILED, "a") as file:  # lines of several workers do not mix: each is one write
            file.write(f"{name}\n")
    return report


def _shorten(items: list[pytest.Item]) -> None:
    """Properties are tried on fewer examples, once for all parameters of a test."""
    functions = {getattr(item, "function", None) for item in items if item.get_closest_marker("slow") is None}
    for function in functions:
        given = getattr(function, _SETTINGS_OF_A_PROPERTY, None)
        if given is not None:
            setattr(function, _SETTINGS_OF_A_PROPERTY, fewer_examples(given))


def _leave_to_other_turns(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests marked `in_turn`, the cases whose turn it is stay."""
    cases: dict[tuple[str, int], list[str]] = {}
    for item in items:
        if (marker := item.get_closest_marker("in_turn")) is not None:
            cases.setdefault((item.nodeid.partition("[")[0], marker.args[0]), []).append(item.nodeid)
    left = {case for (_, turns), names in cases.items() for case in {*names} - in_turn(names, turns, TURN)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


def _shares_session(item: pytest.Item) -> bool:
    return "spark" in _fixtures(item)


def _fixtures(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


def _rank(item: pytest.Item) -> int:
    if _shares_session(item):
        return _LONGEST.index(_SPARK_SESSION)
    return next((rank for rank, start in enumerate(_LONGEST) if item.nodeid.startswith(start)), len(_LONGEST))
