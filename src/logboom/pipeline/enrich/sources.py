"""Reads the tables of a pipeline's file: rows by key, each row an object of fields.

Knows files and HTTP. Must not know versions, or what a table is for. A row without a key is left out, and of several
rows with one key the last counts, in files as in streams.
"""

import hashlib
import urllib.request
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from logboom.base.units import MIB
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.findings import hint
from logboom.pipeline.plan.tables import TableRef

HTTP_MAX_BYTES: Final = 64 * MIB
"""The largest answer that is taken for a table."""
HTTP_TIMEOUT_S: Final = 10.0
FILE_MAX_BYTES: Final = 256 * MIB
"""The largest file that is taken for a table: its rows are objects in the memory of the driver, and of each worker."""
ROWS_MAX: Final = 2_000_000
"""Of any table."""

_HTTP: Final = ("http://", "https://")
Rows = dict[str, dict[str, Any]]


class TableError(PipelineError):
    """A table cannot be read; the text names it and says why."""


def read_table(ref: TableRef, directory: Path) -> Rows:
    """The rows of a table that is a file or an address; TableError where it cannot be read. `directory`: that of the
    pipeline's file."""
    try:
        if ref.kind == "json":
            return rows_of_json(_json_bytes(ref, directory), ref)
        path = directory / ref.location
        return _rows_of(_read_csv(path) if ref.kind == "csv" else _read_parquet(path), ref)
    except (OSError, ValueError, pa.ArrowException) as error:  # ArrowInvalid is a ValueError
        raise TableError(f"the table of {ref.name} cannot be read from {ref.location}: {_said(error)}") from error


def table_fault(ref: TableRef, directory: Path) -> str | None:
    """What is wrong with a table that is a file, before anything runs; None for what is read over the network."""
    if ref.kind == "stream" or ref.location.startswith(_HTTP):
        return None
    if ref.kind == "geoip":
        return _geoip_fault(directory / ref.location)
    try:
        rows = read_table(ref, directory)
    except TableError as error:
        return str(error)
    known = {name for row in rows.values() for name in row}
    for name in ref.fields:
        if rows and name not in known and name.split(".")[0] not in known:
            return f"no row of {ref.location} has {name!r} ({hint(name, sorted(known))})"
    return None


def _geoip_fault(path: Path) -> str | None:
    import maxminddb

    try:
        maxminddb.open_database(path, maxminddb.MODE_MMAP).close()
    except (OSError, ValueError, maxminddb.InvalidDatabaseError) as error:
        return f"{path.name} cannot be read as a file of MaxMind: {_said(error)}"
    return None


def _read_parquet(path: Path) -> pa.Table:
    from pyarrow import parquet  # loads pandas where it is installed, which few need

    with parquet.ParquetFile(path) as file:
        check_rows(file.metadata.num_rows)  # few bytes can be many rows
        return file.read()


def _read_csv(path: Path) -> pa.Table:
    """All columns as texts: a number in a table is what is written there."""
    from pyarrow import csv

    _check_size(path)
    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig", errors="replace")
    names = csv.read_csv(pa.BufferReader(header.encode() + b"\n")).column_names
    options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True)
    return csv.read_csv(path, convert_options=options)


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
    with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:  # noqa: S310
        data: bytes = answer.read(HTTP_MAX_BYTES + 1)
    if len(data) > HTTP_MAX_BYTES:
        raise ValueError(f"the answer has more than {HTTP_MAX_BYTES // MIB} MiB")
    return data


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
    """The fields of a row: those of an object; anything else is the one field `value`."""
    return value if isinstance(value, dict) else {"value": value}


def _key_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _said(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or getattr(error, "reason", None) or error).split())


def encoded(rows: Rows) -> bytes:
    """A table as a file of the store: the same bytes for the same rows.

    >>> encoded({"a": {"n": 1}})
    b'{"a":{"n":1}}'
    """
    return msgspec.json.encode(rows, order="sorted", enc_hook=str)


def version_of(data: bytes) -> str:
    """What a version of a table is called: 16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]
