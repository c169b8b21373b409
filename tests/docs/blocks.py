"""The fenced blocks of a page, and what their first line says is to be done with them.

sh              run to its end; every line must succeed
sh background   started, must still run at the end of the page, then must end cleanly on SIGTERM
python          run as a program
yaml file=NAME  written to NAME for the commands that follow (any language may be written so)
text, yaml, json, ...   only to be read
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        names = [word.removeprefix("file=") for word in self.words if word.startswith("file=")]
        return names[0] if names else None

    @property
    def background(self) -> bool:
        return "background" in self.words


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page in order; a fence without a language has the language ''."""
    found: list[Block] = []
    inside: list[str] | None = None
    info, began = "", 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):  # those of a list's points are indented
            if inside is None:
                inside, info, began = [], line.lstrip().removeprefix("```").strip(), number
            else:
                words, text = info.split(), textwrap.dedent("\n".join(inside)) + "\n"
                found.append(Block(began, words[0] if words else "", tuple(words[1:]), text))
                inside = None
        elif inside is not None:
            inside.append(line)
    assert inside is None, f"{page}:{began}: this block is never closed"
    return found
