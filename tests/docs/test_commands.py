"""Every command line of `logboom` in the documentation names a command and options that there are.

Those that `test_pages` runs are run as they stand there. The others need a cluster, a machine of their own or hours;
they are parsed, so that no page names a command or an option that was renamed.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import blocks_of
from typer.core import TyperGroup
from typer.exceptions import TyperException

from logboom.cli import main

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")])
PAST = {"CHANGELOG.md"}
"""Pages that name what was there once."""
LANGUAGES = {"sh", "text", "console"}
COMMAND = re.compile(r"(?:^|[|;&(] *|\$ )(?:\.venv/bin/)?logboom (?=[a-z-])(.*)")
END = re.compile(r"""\s#|\s[|;&<>]|\)"|\)$""")


def lines_of(page: Path) -> Iterator[tuple[int, str]]:
    """The command lines of a page's blocks and of its text, each with its line."""
    for block in blocks_of(page):
        if block.language in LANGUAGES:
            text = block.text.replace("\\\n", " ")
            yield from ((block.line + number, line) for number, line in enumerate(text.splitlines(), 1))
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        yield from ((number, code) for code in re.findall(r"`(logboom [a-z][^`]*)`", line))


def commands() -> list[tuple[str, str]]:
    """Where each command line stands, and its words behind `logboom`."""
    found = []
    for page in PAGES:
        if page.name not in PAST:
            for number, line in lines_of(page):
                if (match := COMMAND.search(line.strip())) is not None:
                    found.append((f"{page.relative_to(ROOT)}:{number}", END.split(match[1])[0]))
    return found


def fault(words: list[str]) -> str | None:
    """What is wrong with a command line; its values are not looked at, since a page may have words in their place."""
    command: Any = main.application()
    context = None
    while isinstance(command, TyperGroup):
        context = command.context_class(command, parent=context)
        if not words or words[0].startswith("-"):
            return None
        if command.get_command(context, words[0]) is None:
            return f"there is no command {words[0]}"
        # The top level knows its commands by name alone until they are loaded.
        command = main._load(words[0]) if context.parent is None else command.get_command(context, words[0])
        words = words[1:]
    try:
        command.make_parser(command.context_class(command, parent=context)).parse_args(words)
    except TyperException as error:
        return str(error)
    return None


def test_there_are_commands() -> None:
    assert len(commands()) > 150


def test_every_command_and_option_is_there() -> None:
    wrong = {where: told for where, line in commands() if (told := fault(shlex.split(line))) is not None}
    assert wrong == {}


@pytest.mark.parametrize("line", ["clusters up", "cluster up --node 3", "serve --kafke x"])
def test_what_is_not_there_is_told(line: str) -> None:
    assert fault(line.split()) is not None
