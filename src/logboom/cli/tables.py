"""`logboom tables`: read, write and watch the latest value of each key of a compacted stream."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from logboom.base.units import SECOND_MS
from logboom.cli.client import client_config, reach_brokers
from logboom.cli.common import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    fail,
    for_output,
    note,
    plural,
    print_json,
    print_table,
    printable,
    text_or_base64,
)
from logboom.cli.moments import clock_text, span_ms
from logboom.cli.streams import split_settings
from logboom.table import ABSENT, Change, DocumentError, Entry, Table
from logboom.table.documents import parse
from logboom.table.entry import quoted

tables = typer.Typer(no_args_is_help=True, help="Read, write and watch compacted streams as tables.")

_VALUE_SHOWN_MAX: Final = 200
_NO_VALUE: Final = "absent"

Name = Annotated[str, typer.Argument(metavar="TABLE", show_default=False, help="A compacted stream.")]
Key = Annotated[str, typer.Argument(metavar="KEY", show_default=False)]
Prefix = Annotated[str, typer.Option(metavar="TEXT", help="Only keys that begin with it.")]
Expect = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help=f"Only if the key has this version; {_NO_VALUE}: only if it has no value."),
]
Timeout = Annotated[str, typer.Option(metavar="TIME", help="Give up after this time.")]


@tables.command("create")
def create(
    table: Name,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many. (default: the broker's)")] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A setting, such as segment.ms=3600000; repeatable."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if it exists.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Create a stream with cleanup.policy=compact: the latest record of each key is kept for ever."""
    reach_brokers(bootstrap)
    settings = split_settings(config)
    created = Table.create(bootstrap, table, partitions=partitions, settings=settings, options=client_config(bootstrap))
    if not created and not if_not_exists:
        fail(
            f"cannot create table {table!r}: a stream of this name exists; `logboom streams describe {table}` shows it"
        )
    if as_json:
        print_json({"table": table, "created": created})
    else:
        typer.echo(f"{'created' if created else 'exists:'} {table}")


@tables.command("get")
def get(
    table: Name,
    key: Key,
    timeout: Timeout = "30s",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Print the value of a key as it is, on a terminal with control characters as escapes; its version goes to standard
    error.

    The answer has every write that was acknowledged before the command began. A key without a value is an error.
    """
    with _opened(bootstrap, table, timeout, prefix=key) as opened:
        entry = opened.get(_bytes(key))
    if entry is None:
        fail(f"table {table!r} has no value of key {quoted(_bytes(key))}: `logboom tables list {table}` shows its keys")
    if as_json:
        print_json(_as_json(table, entry))
        return
    sys.stdout.buffer.write(for_output(entry.value) + (b"\n" if sys.stdout.isatty() else b""))
    sys.stdout.buffer.flush()
    note(f"{_shown(entry.key)}: version {entry.version}, {clock_text(entry.timestamp_ms)}")


@tables.command("list")
def list_(
    table: Name,
    prefix: Prefix = "",
    timeout: Timeout = "30s",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List the keys that have a value, in order, with versions and sizes."""
    with _opened(bootstrap, table, timeout, prefix=prefix) as opened:
        entries = opened.entries()
        ambiguous = opened.ambiguous_keys()
    if as_json:
        print_json([_as_json(table, entry) for entry in entries])
    elif entries:
        rows = [(_shown(each.key), each.version, len(each.value), clock_text(each.timestamp_ms)) for each in entries]
        print_table(("key", "version", "bytes", "time"), rows)
    else:
        note(f"table {table!r} has no keys" + (f" that begin with {quoted(_bytes(prefix))}" if prefix else " yet"))
    if ambiguous:
        note(
            f"{plural(len(ambiguous), 'key')} with values in more than one partition, such as "
            f"{quoted(ambiguous[0])}: `logboom tables get {table} KEY` says where"
        )


@tables.command("put")
def put(
    table: Name,
    key: Key,
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE", show_default=False, help="The value; - reads standard input, @FILE a file, @@... is text."
        ),
    ],
    expect: Expect = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="VALUE is a JSON merge patch (RFC 7386) for the document that is there.")
    ] = False,
    timeout: Timeout = "30s",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Set the value of a key, and print its version.

    With --expect the broker compares: if another writer was first, nothing is written and the exit code is 1. With
    --merge names of a JSON object are set, null removes one, and what other writers set meanwhile stays.
    """
    data, expected = _value(value), _expected(expect)
    if merge and expected is not None:
        fail("--merge already compares versions: leave out --expect")
    patch = _patch(data) if merge else None
    with _opened(bootstrap, table, timeout, prefix=key) as opened:
        entry = opened.put(_bytes(key), data, expected=expected) if patch is None else opened.merge(_bytes(key), patch)
    if as_json:
        print_json(_as_json(table, entry) if entry else None)
    elif entry is None:
        typer.echo(f"{_shown(_bytes(key))} has no value: there was nothing to remove")
    else:
        typer.echo(f"{_shown(_bytes(key))} has version {entry.version}")


@tables.command("delete")
def delete(
    table: Name,
    key: Key,
    expect: Expect = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="For a key with values in several partitions: delete the one in this.")
    ] = None,
    timeout: Timeout = "30s",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Delete a key. One that has no value is no error, unless a version is expected."""
    expected = _expected(expect)
    if expected == ABSENT:
        fail("a deletion cannot expect that there is nothing to delete: give a version, or leave out --expect")
    with _opened(bootstrap, table, timeout, prefix=key) as opened:
        deleted = opened.delete(_bytes(key), expected=expected, partition=partition)
    if as_json:
        print_json({"table": table, **text_or_base64("key", _bytes(key)), "deleted": deleted})
    else:
        shown = _shown(_bytes(key))
        typer.echo(f"deleted {shown}" if deleted else f"{shown} has no value: there was nothing to delete")


@tables.command("watch")
def watch(
    table: Name,
    prefix: Prefix = "",
    since: Annotated[
        str | None, typer.Option(metavar="POSITION", help="Continue after the `position` of an earlier --json watch.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this many changes.")] = None,
    timeout: Timeout = "30s",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Print what the table holds, then every change, until Ctrl-C.

    It goes on over restarts of the broker without a gap. A key that changes faster than it is printed is printed with
    its latest value.
    """
    show = _print_change_as_json if as_json else _print_change
    _tell_warnings()
    with (
        _ending_quietly(),
        _opened(bootstrap, table, timeout, prefix=prefix) as opened,
        _watch(opened, since) as changes,
    ):
        if since is not None and not changes.resumed:
            note("the changes since that position are no longer all known: this is the whole table")
        for number, change in enumerate(changes, 1):
            show(table, change, changes.position)
            if number == count:
                return


@contextlib.contextmanager
def _ending_quietly() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        return  # the ordinary way to end it
    except BrokenPipeError:
        # The reader of our output closed the pipe: nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _watch(opened: Table, since: str | None) -> Any:
    try:
        return opened.watch(since=since)
    except ValueError as error:
        fail(f"--since: {error}")


def _opened(bootstrap: str, table: str, timeout: str, prefix: str) -> Table:
    reach_brokers(bootstrap)
    timeout_s = span_ms("--timeout", timeout) / SECOND_MS
    return Table.open(bootstrap, table, prefix=_bytes(prefix), timeout_s=timeout_s, options=client_config(bootstrap))


def _bytes(argument: str) -> bytes:
    """An argument as it was typed, also where it is not UTF-8."""
    return os.fsencode(argument)


def _expected(text: str | None) -> int | None:
    if text is None:
        return None
    if text == _NO_VALUE:
        return ABSENT
    if not text.isdecimal():
        fail(f"--expect {text}: a version is a number, as `logboom tables get` shows it, or {_NO_VALUE!r}")
    return int(text)


def _value(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@@"):
        return _bytes(text[1:])
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes()
        except OSError as error:
            fail(f"cannot read {text[1:]}: {error.strerror}")
    return _bytes(text)


def _patch(data: bytes) -> dict[str, Any]:
    try:
        patch = parse(data, "the patch")
    except DocumentError as error:
        fail(str(error))
    if not isinstance(patch, dict):
        fail("a merge patch is a JSON object: put any other value without --merge")
    return patch


def _tell_warnings() -> None:
    """What the table has to say while it watches goes to standard error."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record.getMessage())

    log = logging.getLogger("logboom.table")
    log.addHandler(Notes())
    log.setLevel(logging.INFO)
    log.propagate = False


def _as_json(table: str, entry: Entry) -> dict[str, Any]:
    return {
        "table": table,
        **text_or_base64("key", entry.key),
        **text_or_base64("value", entry.value),
        "version": entry.version,
        "partition": entry.partition,
        "timestamp": entry.timestamp_ms,
    }


def _print_change_as_json(table: str, change: Change, position: str | None) -> None:
    if change.entry is not None:
        document = _as_json(table, change.entry)
    else:
        document = {"table": table, **text_or_base64("key", change.key), "version": change.version}
    document |= {"deleted": change.deleted, "ambiguous": change.ambiguous, "position": position}
    print_json(document)
    sys.stdout.flush()


def _print_change(table: str, change: Change, position: str | None) -> None:
    if change.entry is None:
        typer.echo(f"{_shown(change.key)}  deleted")
    else:
        typer.echo(f"{_shown(change.key)}  {change.entry.version}  {_shown(change.entry.value)}")
    if change.ambiguous:
        note(f"{_shown(change.key)} has values in more than one partition: `logboom tables get {table} KEY` says where")


def _shown(value: bytes) -> str:
    """A value on one line, shortened where it is long."""
    text = value[: 4 * _VALUE_SHOWN_MAX].decode(errors="backslashreplace")
    return printable(text[:_VALUE_SHOWN_MAX]) + ("..." if len(text) > _VALUE_SHOWN_MAX else "")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(tables, name="tables")
