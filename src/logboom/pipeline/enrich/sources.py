"""Reads the tables that a pipeline's file names: rows by key, each row an object of fields.

Knows files and HTTP. Must not know versions, or how a table is used. A row without a key is ignored; of several rows
with the same key the last one counts, in files as in streams.
"""

import contextlib
import hashlib
import http.client
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from logboom.base.units import MIB
from logboom.pipeline.enrich.maxmind import damage_of
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.findings import hint
from logboom.pipeline.plan.tables import TableRef

HTTP_MAX_BYTES: Final = 64 * MIB
"""The largest accepted answer with a table."""
HTTP_TIMEOUT_S: Final = 10.0
"""How long a server may be silent."""
HTTP_ANSWER_S: Final = 60.0
"""How long a whole answer may take: a batch waits for it."""
FILE_MAX_BYTES: Final = 256 * MIB
"""The largest accepted file with a table: its rows are objects in the memory of the driver and of each worker."""
ROWS_MAX: Final = 2_000_000
"""The most rows of a table."""

_UNREADABLE: Final = (
    OSError,
    ValueError,  # includes pa.ArrowInvalid and decoding errors
    ArithmeticError,  # a time outside Python's range
    LookupError,  # a time zone that is unknown on this machine
    RecursionError,
    http.client.HTTPException,
    pa.ArrowException,
)
"""Exceptions that readers raise for invalid bytes of a file or an answer."""
_HTTP: Final = ("http://", "https://")
Rows = dict[str, dict[str, Any]]


class TableError(PipelineError):
    """A table cannot be read; the text names it and says why."""


@contextlib.contextmanager
def _told(ref: TableRef) -> Iterator[None]:
    """Turns the exceptions of readers into TableError."""
    try:
        yield
    except _UNREADABLE as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else _said(error)
        raise TableError(f"the table of {ref.name} cannot be read from {ref.location}: {said}") from error


def is_file(ref: TableRef) -> bool:
    """Whether a table is a file of this machine."""
    return ref.kind != "stream" and not ref.location.startswith(_HTTP)


def read_table(ref: TableRef, directory: Path) -> Rows:
    """The rows of a table from a file or a URL; TableError if it cannot be read. `directory`: that of the pipeline's
    file."""
    with _told(ref):
        if ref.kind == "json":
            return rows_of_json(_json_bytes(ref, directory), ref)
        return _rows_of(_read_columns(ref, directory), ref)


def table_faults(ref: TableRef, directory: Path) -> list[str]:
    """The fault of a table in a file, before anything runs; tables over the network are not checked."""
    if not is_file(ref):
        return []
    if ref.kind == "geoip":
        fault = geoip_fault(directory / ref.location)
        return [] if fault is None else [f"{ref.location} {fault}"]
    try:
        known = _known_names(ref, directory)
    except TableError as error:
        return [str(error)]
    what = "object" if ref.kind == "json" else "column"
    return [
        f"{ref.location} has no {what} {name!r} ({hint(name, known)})"
        for name in ref.fields
        if known is not None and name not in known and name.split(".")[0] not in known
    ]


def _known_names(ref: TableRef, directory: Path) -> list[str] | None:
    """The names that rows of a table may have, in order; None if they are unknown: a list without rows."""
    if ref.kind == "json":
        rows = read_table(ref, directory)
        return sorted({name for row in rows.values() for name in row}) if rows else None
    with _told(ref):
        table = _read_columns(ref, directory)
        _rows_of(table, ref)
    return sorted({name for name in table.column_names if name != ref.key})


def geoip_fault(path: Path) -> str | None:
    """Why a file is not a MaxMind file or is damaged, as the end of a sentence; opened as executors open it."""
    import maxminddb

    try:
        maxminddb.open_database(path).close()
        return damage_of(path)
    except (*_UNREADABLE, maxminddb.InvalidDatabaseError) as error:
        return f"cannot be read as a file of MaxMind: {_said(error)}".replace(f" ({path})", "")


def _read_columns(ref: TableRef, directory: Path) -> pa.Table:
    path = directory / ref.location
    table = _read_csv(path) if ref.kind == "csv" else _read_parquet(path)
    names = table.column_names
    for name in (str(ref.key), *ref.fields):
        if names.count(name) > 1:
            raise ValueError(f"it has {names.count(name)} columns {name!r}")
    for index, field in enumerate(table.schema):
        if pa.types.is_binary(field.type):  # the type in which many programs write texts
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(index, field.name, table.column(index).cast(pa.string()))
    return table


def _read_parquet(path: Path) -> pa.Table:
    from pyarrow import parquet  # loads pandas where it is installed, which few need

    with parquet.ParquetFile(path) as file:
        check_rows(file.metadata.num_rows)  # few bytes can be many rows
        return file.read()


def _read_csv(path: Path) -> pa.Table:
    """All columns as texts: a number in a table stays as it is written."""
    from pyarrow import csv

    _check_size(path)
    data = path.read_bytes()
    header = _text(data).lstrip("\r\n").partition("\n")[0].strip()
    if not header:
        raise ValueError("it has no line with the names of its columns")
    names = csv.read_csv(pa.BufferReader(f"{header}\n".encode())).column_names
    options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True)
    whole = csv.ReadOptions(
        block_size=len(data) + 1
    )  # a value may be as long as the file, and have ends of lines in it
    return csv.read_csv(pa.BufferReader(data + b"\n"), read_options=whole, convert_options=options)


def _text(data: bytes) -> str:
    """The text of a file; ValueError with the line where it is not UTF-8."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError("it is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise ValueError(f"line {line} has a byte (0x{byte:02x}) that is not UTF-8; save it as UTF-8") from error


def _rows_of(table: pa.Table, ref: TableRef) -> Rows:
    key = str(ref.key)
    if key not in table.column_names:
        raise ValueError(f"it has no column {key!r}; there are {', '.join(table.column_names)}")
    check_rows(table.num_rows)
    found: Rows = {}
    for row in table.to_pylist():
        text = _key_text(row.pop(key))
        if text is not None:
            found[text] = {name: value for name, value in row.items() if value is not None}
    return found


def _json_bytes(ref: TableRef, directory: Path) -> bytes:
    if not ref.location.startswith(_HTTP):
        _check_size(directory / ref.location)
        return (directory / ref.location).read_bytes()
    request = urllib.request.Request(ref.location, headers={"Accept": "application/json"})  # noqa: S310 - http(s) alone
    try:
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:  # noqa: S310
            return _whole_answer(answer, time.monotonic() + HTTP_ANSWER_S)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise


def _whole_answer(answer: http.client.HTTPResponse, ends_by: float) -> bytes:
    """A server's answer, limited in size and time."""
    data = bytearray()
    while piece := answer.read1(MIB):
        data += piece
        if len(data) > HTTP_MAX_BYTES:
            raise ValueError(f"the answer has more than {HTTP_MAX_BYTES // MIB} MiB")
        if time.monotonic() > ends_by:
            raise ValueError(f"the answer takes more than {HTTP_ANSWER_S:.0f} s")
    return bytes(data)


def rows_of_json(data: bytes, ref: TableRef) -> Rows:
    """A list of objects with the member `key`, or an object of objects by key. ValueError for anything else."""
    tree = msgspec.json.decode(data)
    check_rows(len(tree) if isinstance(tree, dict | list) else 0)
    if isinstance(tree, dict):
        return {key: fields_of(value) for key, value in tree.items()}
    if not isinstance(tree, list) or ref.key is None or not all(isinstance(row, dict) for row in tree):
        raise ValueError("it should be an object of rows by key, or a list of objects with the member that 'key' names")
    found: Rows = {}
    for row in tree:
        text = _key_text(row.pop(ref.key, None))
        if text is not None:
            found[text] = row
    return found


def check_rows(count: int) -> None:
    """ValueError for more rows than a table may have."""
    if count > ROWS_MAX:
        raise ValueError(f"it has {count:,} rows, and a table may have {ROWS_MAX:,}: memory has to hold them")


def _check_size(path: Path) -> None:
    size_bytes = path.stat().st_size
    if size_bytes > FILE_MAX_BYTES:
        raise ValueError(f"it has {size_bytes // MIB} MiB, and a table may have {FILE_MAX_BYTES // MIB} MiB")


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a row: the members of an object; any other value becomes the single field `value`."""
    return value if isinstance(value, dict) else {"value": value}


def _key_text(value: Any) -> str | None:
    """A key as text, as in events: times, decimals and bytes become texts, everything else as JSON writes it."""
    plain = msgspec.to_builtins(value, enc_hook=str)
    return plain if plain is None or isinstance(plain, str) else msgspec.json.encode(plain).decode()


def _said(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or getattr(error, "reason", None) or error).split())


def encoded(rows: Rows) -> bytes:
    """A table as a file of the store: the same bytes for the same rows.

    >>> encoded({"a": {"n": 1}})
    b'{"a":{"n":1}}'
    """
    return msgspec.json.encode(rows, order="sorted", enc_hook=str)


def version_of(data: bytes) -> str:
    """The name of a table's version: 16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]
