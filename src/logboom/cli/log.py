"""`logboom log`: look into a data directory, of a broker that runs, was stopped or was killed.

Everything goes through storage's own eyes and nothing is written: no lock is taken, nothing is recovered.
"""

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from logboom.base.errors import FormatVersionError, LogboomError, StorageError
from logboom.base.ids import Offset
from logboom.base.units import MIB
from logboom.broker.disk.data_dir import METADATA_DIR, STREAMS_DIR, identity_of
from logboom.broker.disk.ownership import DELETED_SUFFIX, directory_of
from logboom.broker.raft.inspect import MemberView
from logboom.broker.raft.migration import GROUP_DIR, GROUP_FORMAT
from logboom.cli.common import (
    AsJson,
    fail,
    human_bytes,
    note,
    plural,
    print_json,
    print_table,
    printable,
    text_or_base64,
)
from logboom.cli.moments import clock_text
from logboom.host import ReadOnlyDisk
from logboom.metadata import Image, MetadataRecord, apply, apply_all, decode, decode_all, encode
from logboom.raft import EntryType
from logboom.records import Record, iter_records
from logboom.storage import BatchView, Damage, LogTotals, LogView, Notice, check_format, format_of, is_log, verify

log = typer.Typer(no_args_is_help=True, help="Check and read a data directory, of a running or a stopped broker.")

Directory = Annotated[
    Path,
    typer.Argument(metavar="DIR", show_default=False, help="A data directory, or the directory of one log in it."),
]

_PROGRESS_TERMINAL_S: Final = 0.5
_PROGRESS_LOG_S: Final = 10.0
_MAX_DECOMPRESSED_BYTES: Final = 256 * MIB
_RECORD_MAX_BYTES: Final = MIB


@dataclass(frozen=True, slots=True)
class _Tree:
    """The logs of a directory, and what in it is none."""

    disk: ReadOnlyDisk
    logs: tuple[str, ...]
    strangers: tuple[str, ...] = ()
    metadata: str | None = None
    """The log of the metadata among them."""
    member: MemberView | None = None
    """The member of the metadata group that it belongs to; None in a directory from before there were groups."""


def _tree(directory: Path) -> _Tree:
    disk = ReadOnlyDisk(directory)
    if not directory.is_dir():
        fail(f"{directory} is not a directory")
    if is_log(disk, "."):
        return _Tree(ReadOnlyDisk(directory.absolute().parent), (directory.absolute().name,))
    try:
        marked = check_format(disk, f"Logboom {version('logboom')}")
    except FormatVersionError as error:
        fail(str(error))
    if not marked or not disk.exists(STREAMS_DIR):
        fail(f"{directory} is not a data directory of Logboom: name the directory that `logboom serve --data` uses")
    metadata, member = _metadata(disk)
    below = [f"{STREAMS_DIR}/{name}" for name in disk.list(STREAMS_DIR)]
    logs = tuple(path for path in (metadata, *below) if path is not None and is_log(disk, path))
    return _Tree(disk, logs, tuple(path for path in below if path not in logs), metadata, member)


def _metadata(disk: ReadOnlyDisk) -> tuple[str | None, MemberView | None]:
    """The log of the metadata, and the member of the group that has it."""
    if is_log(disk, METADATA_DIR) and format_of(disk) < GROUP_FORMAT:
        return METADATA_DIR, None
    if not disk.exists(GROUP_DIR):
        return None, None
    try:
        member = MemberView(disk, GROUP_DIR)
    except (LogboomError, OSError) as error:
        fail(f"the metadata cannot be read: {error}")
    return member.path, member


@log.command("verify")
def verify_command(directory: Directory, as_json: AsJson = False) -> None:
    """Read everything and check it; exit code 1 where anything below the durable end is damaged.

    Nothing is written. With a broker running, what it acknowledged before the start of the check is checked.
    """
    tree = _tree(directory)
    check = _Check(tree, as_json)
    for path in tree.logs:
        check.one(path)
    check.missing()
    for path in tree.strangers:
        check.take(Notice(path, "is no log"))
    check.end()
    if check.damage:
        raise typer.Exit(1)


class _Check:
    """A running verification and its findings."""

    def __init__(self, tree: _Tree, as_json: bool) -> None:
        self.damage: list[Damage] = []
        self._notices: list[Notice] = []
        self._totals: dict[str, LogTotals] = {}
        self._tree = tree
        self._as_json = as_json
        self._terminal = sys.stderr.isatty()
        self._every_s = _PROGRESS_TERMINAL_S if self._terminal else _PROGRESS_LOG_S
        self._next_s = time.monotonic() + self._every_s
        self._bytes = 0

    def one(self, path: str) -> None:
        try:
            self._totals[path] = verify(LogView(self._tree.disk, path), self.take, self._progress)
        except FileNotFoundError as error:
            if self._tree.disk.exists(path) and is_log(self._tree.disk, path):
                self.take(Damage(path, 0, None, f"cannot be read: {error}"))
            else:
                self.take(Notice(path, "went away while it was looked at: its stream was deleted"))
        except OSError as error:
            self.take(Damage(path, 0, None, f"cannot be read: {error}"))

    def take(self, found: Damage | Notice) -> None:
        self._clear()
        if isinstance(found, Damage):
            self.damage.append(found)
        else:
            self._notices.append(found)
        if not self._as_json:
            typer.echo(f"damage: {found}" if isinstance(found, Damage) else f"note: {found}")

    def missing(self) -> None:
        """Partitions that the metadata names and no directory holds."""
        if self._tree.metadata is None or self.damage:
            return
        try:
            image = _image(self._tree)
            broker = identity_of(self._tree.disk).broker_id
        except (LogboomError, OSError) as error:
            self.take(Damage(METADATA_DIR, 0, None, f"cannot be replayed: {error}"))
            return
        for stream in image:
            for index in range(stream.partitions):
                if stream.assignments and broker not in stream.assignments[index].replicas:
                    continue
                path = directory_of(stream.name, index)
                if path not in self._tree.logs and not self._tree.disk.exists(path):
                    self.take(Damage(path, 0, None, "the directory is missing"))

    def _progress(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + self._every_s
            line = f"{human_bytes(self._bytes)} checked, {plural(len(self._totals), 'log')} done"
            typer.echo(f"\r{line}\x1b[K" if self._terminal else line, err=True, nl=not self._terminal)

    def _clear(self) -> None:
        if self._terminal:
            typer.echo("\r\x1b[K", err=True, nl=False)

    def end(self) -> None:
        self._clear()
        every = self._totals.values()
        sums = {
            "logs": len(self._totals),
            "segments": sum(one.segments for one in every),
            "records": sum(one.records for one in every),
            "bytes": sum(one.size_bytes for one in every),
            "tail_records": sum(one.tail_records for one in every),
        }
        if self._as_json:
            found = {"damage": [asdict(one) for one in self.damage], "notes": [asdict(one) for one in self._notices]}
            print_json({"damaged": bool(self.damage), **sums, **found})
            return
        tail = f"; {plural(sums['tail_records'], 'record')} past the durable end" if sums["tail_records"] else ""
        typer.echo(
            f"{plural(sums['logs'], 'log')}, {plural(sums['segments'], 'segment')}, "
            f"{plural(sums['records'], 'record')}, {human_bytes(sums['bytes'])}{tail}: "
            + (f"{plural(len(self.damage), 'damage')} found" if self.damage else "nothing is damaged")
        )


def _image(tree: _Tree) -> Image:
    """The metadata that is known to be committed."""
    if tree.member is not None:
        return apply_all(Image(), _group_records(tree.member))
    image = Image()
    for found in LogView(tree.disk, METADATA_DIR).batches():
        if isinstance(found, Damage):
            raise StorageError(str(found))
        for record in iter_records(found.data, 0, found.header, _RECORD_MAX_BYTES):
            image = apply(image, decode(record.value or b""))
    return image


def _group_records(member: MemberView) -> Iterator[MetadataRecord]:
    if member.snapshot.data:
        yield from decode_all(member.snapshot.data)
    for entry in member.committed():
        if entry.type is EntryType.NORMAL and entry.data:
            yield from decode_all(entry.data)


@log.command("dump")
def dump(
    directory: Directory,
    stream: Annotated[
        str | None, typer.Option(help="The stream whose records to print; without it, list the streams.")
    ] = None,
    partition: Annotated[int, typer.Option(min=0, help="Which of its partitions.")] = 0,
    offset: Annotated[int | None, typer.Option(min=0, help="The first offset. (default: the log's start)")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="How many records at most. (default: all)")] = None,
    metadata: Annotated[bool, typer.Option("--metadata", help="The metadata log's records instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print records as they lie in the files, also behind the durable end; exit code 1 where damage was met."""
    tree = _tree(directory)
    if metadata and tree.member is not None:
        _dump_group(tree.member, count, as_json)
        return
    if metadata:
        path = METADATA_DIR
    elif stream is not None:
        path = directory_of(stream, partition)
    elif len(tree.logs) == 1 and not tree.logs[0].startswith(f"{STREAMS_DIR}/"):
        path = tree.logs[0]
    else:
        _list_logs(tree, as_json)
        return
    if path not in tree.logs:
        fail(f"there is no log {path} in {directory}; `logboom log dump {directory}` shows what there is")
    view = LogView(tree.disk, path)
    start = view.start if offset is None else Offset(offset)
    damaged = False
    for record, found in _records(_everything(view, start), start, count):
        if isinstance(found, Damage):
            damaged = True
            note(f"damage: {found}")
        elif record is not None:
            _show(found, record, as_json)
    if damaged:
        raise typer.Exit(1)


def _dump_group(member: MemberView, count: int | None, as_json: bool) -> None:
    """The records of the last snapshot and those of the entries behind it, committed or not."""
    damaged = False
    for index, term, record in itertools.islice(_indexed(member), count):
        if isinstance(record, Damage):
            damaged = True
            note(f"damage: {record}")
        elif as_json:
            print_json({"offset": index, "term": term, **text_or_base64("value", record)})
        else:
            typer.echo(f"{index}  {term}  {printable(record)}")
    if damaged:
        raise typer.Exit(1)


def _indexed(member: MemberView) -> Iterator[tuple[int, int, bytes | Damage]]:
    snapshot = member.snapshot
    for record in decode_all(snapshot.data) if snapshot.data else ():
        yield snapshot.index, snapshot.term, encode(record)
    for found in member.entries():
        if isinstance(found, Damage):
            yield 0, 0, found
            continue
        entry, _ = found
        if entry.index > snapshot.index and entry.type is EntryType.NORMAL and entry.data:
            for record in decode_all(entry.data):
                yield entry.index, entry.term, encode(record)


def _everything(view: LogView, start: Offset) -> Iterator[BatchView | Damage]:
    yield from view.batches(start)
    yield from view.tail()


def _records(
    found: Iterator[BatchView | Damage], start: Offset, count: int | None
) -> Iterator[tuple[Record | None, BatchView | Damage]]:
    """At most `count` records with their batches, from an offset on; damage is yielded where it is found."""
    given = 0
    for one in found:
        if isinstance(one, Damage):
            yield None, one
            continue
        for record in iter_records(one.data, 0, one.header, _MAX_DECOMPRESSED_BYTES):
            if record.offset < start:
                continue
            if count is not None and given >= count:
                return
            given += 1
            yield record, one
        if count is not None and given >= count:
            return


def _show(batch: BatchView, record: Record, as_json: bool) -> None:
    header = batch.header
    if not as_json:
        key = "-" if record.key is None else printable(record.key)
        value = "-" if record.value is None else printable(record.value)
        typer.echo(f"{record.offset}  {clock_text(record.timestamp_ms)}  {key}  {value}")
        return
    fields: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **text_or_base64("key", record.key),
        **text_or_base64("value", record.value),
        "headers": [{"name": name, **text_or_base64("value", value)} for name, value in record.headers],
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "codec": header.codec.name.lower(),
        "file": batch.path,
        "position": batch.position,
    }
    print_json(fields)


def _list_logs(tree: _Tree, as_json: bool) -> None:
    rows = []
    for path in tree.logs:
        if path.endswith(DELETED_SUFFIX):
            continue
        view = LogView(tree.disk, path)
        size_bytes = sum(segment.durable_bytes for segment in view.segments)
        name = METADATA_DIR if path == tree.metadata else path.removeprefix(f"{STREAMS_DIR}/")
        rows.append((name, view.start, view.durable_end, len(view.segments), size_bytes))
    columns = ("log", "start", "durable_end", "segments", "bytes")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table([column.replace("_", " ") for column in columns], rows)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(log, name="log")
