"""docs/guarantees.md: each promise names a test, and each test that is named exists.

Tests are looked for in the source, not run: a promise must not pass because a test was renamed away.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
NOT_YET = "## Not promised yet"
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
CELL_BAR = " | "


def promises() -> list[tuple[int, str, str]]:
    """Line, promise and proof of every row of every table of promises."""
    found = []
    inside = False
    for number, line in enumerate(PAGE.read_text().split(NOT_YET)[0].splitlines(), 1):
        if not line.startswith("|"):
            inside = False
        elif line == "| promise | proven by |":
            inside = True
        elif inside and not line.startswith("|---"):
            promise, _, proof = line.strip("| ").rpartition(CELL_BAR)
            found.append((number, promise, proof))
    return found


def names_of(path: Path) -> set[str]:
    """Names of a module's test functions."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_there_are_promises() -> None:
    assert len(promises()) > 30


def test_each_promise_names_its_proof() -> None:
    bare = [f"line {number}: {promise}" for number, promise, proof in promises() if not TEST_ID.search(proof)]
    assert not bare, "promises without a test:\n" + "\n".join(bare)


def test_each_proof_exists() -> None:
    missing = []
    for file, name in sorted(set(TEST_ID.findall(PAGE.read_text()))):
        path = ROOT / file
        if not path.exists() or name not in names_of(path):
            missing.append(f"{file}::{name}")
    assert not missing, "tests that docs/guarantees.md names and that are not there:\n" + "\n".join(missing)


def test_everything_that_looks_like_a_test_is_one() -> None:
    """A misspelt id must not slip through by not looking like one."""
    mentioned = re.findall(r"`([^`]*(?:tests/|test_)[^`]*)`", PAGE.read_text())
    odd = [text for text in mentioned if not TEST_ID.fullmatch(f"`{text}`")]
    assert not odd


def test_nobody_promises_what_cannot_be_had() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"exactly[- ]once delivery", page.read_text(), re.IGNORECASE), page
