"""The house's own rules that no linter knows: small pieces, modules that say what they are, nothing left for later."""

import ast
import asyncio
import re
import statistics
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from tests.support.sources import tree_of

pytestmark = pytest.mark.xdist_group("tests/house/test_style.py")  # the modules are read once, for all of these

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "logboom"
MODULES = sorted(SOURCE.rglob("*.py"))
MODULE_MAX_LINES = 600
FUNCTION_MAX_LINES = 70
FUNCTION_P95_MAX_LINES = 56
CLASS_MAX_METHODS = 25
INTERFACES = {"AbstractEventLoop": asyncio.AbstractEventLoop, "Transport": asyncio.Transport}
"""Of the standard library, with many methods; only those that a class adds to its interface count."""

EXPECTING = re.compile(r"pytest\.(raises|warns|fail)|(.*\.)?_?(check|assert|expect|must|require)\w*")
"""Calls by which a reader sees what a test expects."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@dataclass(frozen=True)
class Module:
    """What is looked at of one module; its places are by name and line."""

    name: str
    has_docstring: bool
    functions: dict[str, int]
    """How many lines each has."""
    classes: dict[str, int]
    """How many methods each has."""
    silent: list[str]
    """Public classes and functions without a docstring."""


@cache
def modules() -> tuple[Module, ...]:
    return tuple(map(module_of, MODULES))


def module_of(path: Path) -> Module:
    tree, name = tree_of(path), name_of(path)
    nodes = [node for node in ast.walk(tree) if isinstance(node, Function | ast.ClassDef)]
    return Module(
        name,
        bool(ast.get_docstring(tree)),
        {
            f"{name}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
            for node in nodes
            if isinstance(node, Function) and node.end_lineno is not None
        },
        {
            f"{name}:{node.lineno} {node.name}": len(methods_of(node))
            for node in nodes
            if isinstance(node, ast.ClassDef)
        },
        [
            f"{name}:{node.lineno} {node.name}"
            for node in tree.body
            if isinstance(node, Function | ast.ClassDef)
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ],
    )


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 50


def test_modules_say_what_they_are() -> None:
    """A package opens with what a newcomer must know."""
    assert [module.name for module in modules() if not module.has_docstring] == []


def test_modules_stay_small() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (*MODULES, *(ROOT / "tests").rglob("*.py"))
    }
    assert {where: length for where, length in lengths.items() if length > MODULE_MAX_LINES} == {}


def test_functions_are_small() -> None:
    lengths = {where: length for module in modules() for where, length in module.functions.items()}
    assert {where: length for where, length in lengths.items() if length > FUNCTION_MAX_LINES} == {}
    assert statistics.quantiles(lengths.values(), n=20)[-1] < FUNCTION_P95_MAX_LINES


def test_public_classes_and_functions_say_what_they_are() -> None:
    silent = [where for module in modules() for where in module.silent]
    assert silent == []


def test_every_package_is_in_the_readme() -> None:
    readme = (SOURCE / "README.md").read_text(encoding="utf-8")
    packages = [path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    assert [package for package in packages if f"| `{package}` |" not in readme] == []


def test_broad_excepts_give_their_reason() -> None:
    """`except Exception` and `except BaseException` say in their line which outermost edge they are, or that they raise
    the error again and what they do before."""
    bare = [
        f"{name_of(path)}:{number}"
        for path in MODULES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"except (Base)?Exception\b", line)
        and len(line.partition("#")[2].replace("noqa: BLE001", "").strip(" #-")) < 10
    ]
    assert bare == []


def asserts(test: Function) -> bool:
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and EXPECTING.fullmatch(ast.unparse(node.func)))
        for node in ast.walk(test)
    )


def test_tests_without_an_assertion_say_what_they_prove() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in tree_of(path).body
        if isinstance(node, Function) and node.name.startswith("test_")
        if not asserts(node) and not ast.get_docstring(node)
    ]
    assert silent == []


def test_classes_do_one_thing() -> None:
    """An object of more methods does more than one thing; those of an interface that others define do not count."""
    counts = {where: count for module in modules() for where, count in module.classes.items()}
    assert {where: count for where, count in counts.items() if count > CLASS_MAX_METHODS} == {}


def methods_of(node: ast.ClassDef) -> list[str]:
    """The methods that a class adds to the interfaces it implements."""
    bases = [base.attr for base in node.bases if isinstance(base, ast.Attribute)]
    given = {name for base in bases if base in INTERFACES for name in dir(INTERFACES[base])}
    return [part.name for part in node.body if isinstance(part, Function) and part.name not in given]
