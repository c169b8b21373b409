"""What a module must keep to so that it may be compiled, where neither the compiler nor the type check says so."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support.sources import tree_of

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "logboom"
COMPILED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["logboom"]["compiled"]

OF_ONE_OBJECT = {
    "broker/partition/append_acks.py: outcome is error",
    "broker/partition/read_cache.py: key[0] is owner",
    "kafka/connection/inflight.py: entry is queue[0]",
    "kafka/connection/inflight.py: handler is not self._changing",
    "kafka/connection/io_cycle.py: waits_for is not state.waits_for",
    "kafka/fetch/fetch.py: role.failure is not fetch.failure",
    "kafka/fetch/fetch.py: role.leads is not fetch.led",
    "kafka/fetch/partition_fetch.py: last is self.last_segment",
    "broker/partition/validation.py: header.codec is not self.codec",
    "storage/compaction/segment_writer.py: data is not self._run",
}
"""Comparisons that were looked at: both sides are objects of classes, bytes, members of enums, or booleans.

The compiler keeps a number, and a tuple whose length its type says, as plain C values. An object is made where one is
asked for, each time another, so that `is` between two of these is never true: compare them by `==`, or count changes.
"""


READ_BESIDE_A_CHANGE = {
    "storage/state.py",
    "storage/checkpoint.py",
    "storage/open_files.py",
    "storage/segment/file.py",
    "storage/segment/index_file.py",
    "host/disk.py",
}
"""Classes with an attribute that one thread changes and others read, and whose old value may end an open file.

Compiled code gives the old value of an attribute back before it stores the new one. Closing a file lets another thread
run in between, which would then read an object that is gone. Other compiled classes whose attributes several threads
read hold plain values there, whose end runs no code.
"""


def comparisons(module: str) -> Iterator[str]:
    """The comparisons by identity in which no side is a constant or a member of an enum."""
    for node in ast.walk(tree_of(SOURCE / module)):
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


def dotted(module: str) -> str:
    """The name that others import a module by."""
    return "logboom." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def classes(module: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The classes at the top of a module, each with its bases and the modules or packages that these come from."""
    tree = tree_of(SOURCE / module)
    imported = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return [
        (
            node.name,
            [imported.get(base.id, (dotted(module), base.id)) for base in node.bases if isinstance(base, ast.Name)],
        )
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    ]


def test_what_inherits_from_a_compiled_class_is_compiled() -> None:
    """Else making the first object of it raises TypeError, which only a run of that code would find."""
    compiled = {(name, dotted(module)) for module in COMPILED for name, _ in classes(module)}
    others = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")} - set(COMPILED)
    found = [
        f"{module}: {name}({base})"
        for module in sorted(others)
        for name, bases in classes(module)
        for source, base in bases
        # A package may hand on what its modules define.
        for compiled_name, compiled_module in compiled
        if base == compiled_name and f"{compiled_module}.".startswith(f"{source}.")
    ]
    assert found == []


def causes_left_out(module: str) -> Iterator[str]:
    """The lines that raise an error `from` another one in a way that is lost when they are compiled."""
    for node in ast.walk(tree_of(SOURCE / module)):
        if not isinstance(node, ast.Raise) or node.cause is None or ast.unparse(node.cause) == "None":
            continue
        raised, cause = node.exc, ast.unparse(node.cause)
        kept = (
            isinstance(raised, ast.Call)
            and ast.unparse(raised.func) == "with_cause"
            and [ast.unparse(argument) for argument in raised.args[1:]] == [cause]
        )
        if not kept:
            yield f"{module}, line {node.lineno}: raise ... from {cause}"


def test_what_is_compiled_keeps_the_causes_of_errors() -> None:
    found = [raised for module in COMPILED for raised in causes_left_out(module)]
    assert found == [], "the compiler leaves `from` out, and failed syncs are known by their causes: `with_cause`"


def test_no_class_is_compiled_of_which_a_thread_may_read_what_another_one_gives_back() -> None:
    assert READ_BESIDE_A_CHANGE & set(COMPILED) == set()
    assert [module for module in READ_BESIDE_A_CHANGE if not (SOURCE / module).is_file()] == []


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
