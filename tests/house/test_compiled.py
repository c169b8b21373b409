"""What a module must keep to so that it may be compiled, where neither the compiler nor the type check says so."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "logboom"
COMPILED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["logboom"]["compiled"]

OF_ONE_OBJECT = {
    "broker/partition/append_queue.py: outcome is error",
    "broker/partition/read_cache.py: key[0] is owner",
    "kafka/connection/inflight.py: entry is queue[0]",
    "kafka/connection/inflight.py: handler is not self._changing",
    "kafka/connection/turn.py: state.reads is not self._is_read",
    "kafka/connection/turn.py: waits_for is not state.waits_for",
    "kafka/fetch/fetch.py: role.failure is not fetch.failure",
    "kafka/fetch/fetch.py: role.leads is not fetch.led",
    "kafka/fetch/partition_fetch.py: last is self.last_segment",
    "broker/partition/validation.py: header.codec is not self.codec",
}
"""Comparisons that were looked at: both sides are objects of classes, members of enums, or booleans.

The compiler keeps a number, and a tuple whose length its type says, as plain C values. An object is made where one is
asked for, each time another, so that `is` between two of these is never true: compare them by `==`, or count changes.
"""


def comparisons(module: str) -> Iterator[str]:
    """The comparisons by identity in which no side is a constant or a member of an enum."""
    for node in ast.walk(ast.parse((SOURCE / module).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Compare):
            continue
        operands = [node.left, *node.comparators]
        for at, operator in enumerate(node.ops):
            sides = operands[at : at + 2]
            named = any(
                isinstance(s, ast.Constant) or (isinstance(s, ast.Attribute) and s.attr.isupper()) for s in sides
            )
            if isinstance(operator, ast.Is | ast.IsNot) and not named:
                left, right = (ast.unparse(side) for side in sides)
                yield f"{module}: {left} {'is' if isinstance(operator, ast.Is) else 'is not'} {right}"


def test_what_is_compiled_compares_no_numbers_or_tuples_by_identity() -> None:
    found = {comparison for module in COMPILED for comparison in comparisons(module)}
    assert sorted(found - OF_ONE_OBJECT) == [], "numbers and tuples have no identity once compiled; see OF_ONE_OBJECT"
    assert sorted(OF_ONE_OBJECT - found) == [], "gone by now"


def classes(module: str) -> list[tuple[str, list[str]]]:
    """The classes at the top of a module, each with the names of its bases."""
    text = (SOURCE / module).read_text(encoding="utf-8")
    found = re.findall(r"^class (\w+)(?:\(([^)]*)\))?:", text, re.MULTILINE)
    return [(name, [base.strip().rpartition(".")[2] for base in bases.split(",")]) for name, bases in found]


def test_what_inherits_from_a_compiled_class_is_compiled() -> None:
    """Else making the first object of it raises TypeError, which only a run of that code would find."""
    compiled = {name for module in COMPILED for name, _ in classes(module)}
    others = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")} - set(COMPILED)
    found = [
        f"{module}: {name}({base})"
        for module in sorted(others)
        for name, bases in classes(module)
        for base in bases
        if base in compiled
    ]
    assert found == []


def test_every_module_that_is_to_be_compiled_is_there_once() -> None:
    assert len(set(COMPILED)) == len(COMPILED)
    assert [module for module in COMPILED if not (SOURCE / module).is_file()] == []


def test_the_compiler_is_the_type_checker_that_is_locked() -> None:
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    lock = (ROOT / "requirements" / "all.lock").read_text(encoding="utf-8")
    assert re.findall(r'^MYPY = "(.*)"', setup, re.MULTILINE) == re.findall(r"^mypy==(\S+)", lock, re.MULTILINE)


def test_no_compiled_module_lies_in_the_sources() -> None:
    """It would run in place of a source that was changed after it."""
    assert [str(path) for path in SOURCE.rglob("*.so")] == []
