"""Reader of data-driven test files in the format of cockroachdb/datadriven, and where the published ones are found."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CASES_VARIABLE = "LOGBOOM_RAFT_CASES"


@dataclass(frozen=True)
class Argument:
    """`key`, `key=value` or `key=(value, value)`."""

    key: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One command with its input, and what it is expected to print."""

    line: int
    command: str
    arguments: tuple[Argument, ...]
    input: str
    expected: str

    def values(self, key: str) -> tuple[str, ...]:
        """All values of an argument, none where it is missing."""
        return tuple(value for argument in self.arguments if argument.key == key for value in argument.values)

    def words(self) -> list[str]:
        """The arguments without a value."""
        return [argument.key for argument in self.arguments if not argument.values]


def cases_folder() -> Path | None:
    """Where the published cases are: LOGBOOM_RAFT_CASES, or `shared/raft-cases` beside the repository or above it."""
    if named := os.environ.get(CASES_VARIABLE):
        return Path(named)
    repository = Path(__file__).parents[2]
    for above in repository.parents[:2]:
        if (folder := above / "shared" / "raft-cases").is_dir():
            return folder
    return None


def case_files(kind: str) -> list[object]:
    """Parameters for a test over the files of one folder; one that is skipped where there are none."""
    folder = cases_folder()
    files = sorted((folder / kind).glob("*.txt")) if folder is not None else []
    if not files:
        reason = f"no published cases: set {CASES_VARIABLE} to a folder with {kind}/*.txt of etcd-io/raft"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="absent")]
    return [pytest.param(path, id=path.stem) for path in files]


def read_cases(path: Path) -> Iterator[Case]:
    """The commands of a file, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    position = 0
    while position < len(lines):
        line = lines[position].strip()
        position += 1
        if not line or line.startswith("#"):
            continue
        start = position
        while line.endswith("\\"):
            line = line[:-1] + " " + lines[position].strip()
            position += 1
        command, arguments = parse_line(line)
        given: list[str] = []
        while lines[position] != "----":
            given.append(lines[position])
            position += 1
        expected, position = _expected(lines, position + 1)
        yield Case(start, command, arguments, "\n".join(given).strip(), expected)


def _expected(lines: list[str], position: int) -> tuple[str, int]:
    """Output up to an empty line; between doubled separators it may hold empty lines."""
    if position < len(lines) and lines[position] == "----":
        end = position + 1
        while lines[end : end + 2] != ["----", "----"]:
            end += 1
        return "\n".join(lines[position + 1 : end]), end + 2
    end = position
    while end < len(lines) and lines[end].strip():
        end += 1
    return "\n".join(lines[position:end]), end


def parse_line(line: str) -> tuple[str, tuple[Argument, ...]]:
    """A command and its arguments; values in brackets may hold brackets and spaces."""
    command, _, rest = line.strip().partition(" ")
    arguments = []
    rest = rest.strip()
    while rest:
        end = min((at for at in (rest.find(" "), rest.find("=")) if at >= 0), default=len(rest))
        key, rest = rest[:end], rest[end:]
        values: tuple[str, ...] = ()
        if rest.startswith("=("):
            values, rest = _bracketed(rest[2:])
        elif rest.startswith("="):
            value, _, rest = rest[1:].partition(" ")
            values = (value,)
        arguments.append(Argument(key, values))
        rest = rest.strip()
    return command, tuple(arguments)


def _bracketed(rest: str) -> tuple[tuple[str, ...], str]:
    values = [""]
    depth = 1
    for position, character in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return tuple(value.strip() for value in values), rest[position + 1 :]
        if character == "," and depth == 1:
            values.append("")
        else:
            values[-1] += character
    raise ValueError(f"a bracket is never closed: {rest}")
