"""What every command shares: where the broker is, how errors end, how results are printed.

Knows terminals; no protocol and no client library, so that a command that needs neither starts at once.
"""

import base64
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from logboom.base.errors import LogboomError

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
"""As in `base.quantities`, which some commands need not load."""

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="LOGBOOM_BOOTSTRAP",
        show_envvar=True,
        metavar="HOST:PORT",
        help="The broker to ask.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def made_directory(path: Path | None) -> Path | None:
    """An option's callback: the directory is made where it is missing."""
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
    return path


class CommandError(LogboomError):
    """A command cannot continue; the message says why and what to do next."""


def fail(sentence: str) -> NoReturn:
    """End the command with an error: one sentence for a person, exit code 1."""
    raise CommandError(sentence)


def read_text(file: Path) -> str:
    """The text of a configuration file. What cannot be read, or is not UTF-8, ends the command with its place."""
    from logboom.base.settings import decode_yaml

    try:
        return decode_yaml(file.read_bytes(), str(file))
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}")


def print_json(value: Any) -> None:
    """One line of JSON on standard output."""
    typer.echo(json_line(value))


def json_line(value: Any) -> str:
    r"""A value as one line of JSON that does nothing to a terminal: control characters, and others that are not
    printed, are written as their escapes. A reader of JSON finds the same value.

    >>> json_line({"name": "a\x1b[2J\x9b2J\u202e"})
    '{"name": "a\\u001b[2J\\u009b2J\\u202e"}'
    """
    return escaped_json(json.dumps(value, ensure_ascii=False, default=str))


def escaped_json(line: str) -> str:
    """JSON on one line as `json_line` writes it."""
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def printable(value: bytes | str) -> str:
    r"""Somebody else's text as it may be shown on a terminal, on one line: control characters, and others that are not
    printed, as `repr` shows them, bytes that are not UTF-8 as `\xNN`.

    >>> printable(b"M\xc3\xbcller\n\x1b[2J\xff")
    'Müller\\n\\x1b[2J\\xff'
    """
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def for_output(value: bytes) -> bytes:
    """A value for standard output: byte for byte, except where that is a terminal, which is not to obey it. There it
    keeps its lines and tabs."""
    if not sys.stdout.isatty():
        return value
    lines = value.split(b"\n")
    return b"\n".join(b"\t".join(printable(each).encode() for each in line.split(b"\t")) for line in lines)


def text_or_base64(name: str, value: bytes | str | None) -> dict[str, str | None]:
    """A field of JSON for some bytes: text where they are UTF-8, else base64 under a field name with that suffix."""
    if value is None or isinstance(value, str):
        return {name: value}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns under headings, numbers to the right; easy to read and to cut up."""
    for line in table_lines(headers, rows):
        typer.echo(line)


def table_lines(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of such a table."""
    body = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    numeric = [all(_is_number(row[column]) for row in body) for column in range(len(headers))]
    widths = [max(len(line[column]) for line in [list(headers), *body]) for column in range(len(headers))]
    lines = []
    for line in [[header.upper() for header in headers], *body]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _is_number(text: str) -> bool:
    return text in ("-", "") or text.lstrip("-").replace(".", "", 1).isdigit()


def note(sentence: str) -> None:
    """Something to know beside the result, on standard error."""
    typer.echo("\n".join(map(printable, sentence.split("\n"))), err=True)


def plural(count: int, word: str) -> str:
    """A count and its word.

    >>> plural(1, "record"), plural(2_500, "record")
    ('1 record', '2,500 records')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def human_bytes(size_bytes: float) -> str:
    """A size for people.

    >>> human_bytes(1_500_000)
    '1.5 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1_000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1_000
    return f"{size_bytes:.1f} TB"


def error_line(sentence: str) -> None:
    """An error as every command shows it."""
    label = typer.style("logboom:", fg="red", bold=True) if sys.stderr.isatty() else "logboom:"
    lines = sentence.splitlines() or ["an error without a text"]
    typer.echo("\n".join(f"{label} {printable(line)}" for line in lines), err=True)
