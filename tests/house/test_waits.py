"""Tests wait long enough for a machine that is busy with other things: a bound is there to end what hangs."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.sources import tree_of
from tests.support.waiting import WAIT_S

ROOT = Path(__file__).parents[2]
WAITS = {"flush", "join", "result", "settimeout", "sigterm"}
"""Calls whose first argument is a bound in seconds."""
STARTS = {"HTTPConnection", "create_connection", "get_watermark_offsets", "list_topics", "result", "run", "run_logboom"}
"""Calls that take one as `timeout` or `timeout_s`."""
A_MOMENT_S = 1
"""A wait of up to so much is for what may not come."""


def bounds(call: ast.Call) -> Iterator[ast.expr]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in WAITS and not ast.unparse(call.func).endswith("network.join"):
        yield from call.args[:1]
    if name in STARTS:
        yield from (given.value for given in call.keywords if given.arg in ("timeout", "timeout_s"))
    if name == "timeout" and "mark" in ast.unparse(call.func):
        yield from call.args


def test_bounds_of_what_runs_in_real_time_are_the_one_of_all_tests() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{bound.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call)
        for bound in bounds(call)
        if isinstance(bound, ast.Constant) and isinstance(bound.value, int | float)
        if A_MOMENT_S < bound.value < WAIT_S
    ]
    assert found == [], "wait with WAIT_S of tests/support/waiting.py"
