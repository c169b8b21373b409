"""docs/bad-input.md: each case names the test that shows it, and each test that is named exists."""

import re
from pathlib import Path

from tests.support.sources import functions_of

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "bad-input.md").read_text()
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
HEAD = "| case | what the broker answers | Kafka 4.1 | shown by |"


def cases() -> list[tuple[str, str]]:
    """Case and proof of every row of every table."""
    found, inside = [], False
    for line in PAGE.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line == HEAD:
            inside = True
        elif inside and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            assert len(cells) == 4, line
            found.append((cells[0], cells[3]))
    return found


def test_each_case_names_its_test() -> None:
    assert len(cases()) > 45
    bare = [case for case, proof in cases() if not TEST_ID.search(proof) and not proof.startswith("above")]
    assert not bare, bare


def test_each_test_that_is_named_exists() -> None:
    named = sorted(set(TEST_ID.findall(PAGE)))
    missing = [f"{file}::{name}" for file, name in named if name not in functions_of(ROOT / file)]
    assert not missing, missing
