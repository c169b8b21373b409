"""Row 4: tables, which are compacted streams seen as the latest value of each key.

    with Table.open("localhost:9092", "settings") as table:
        entry = table.get("checkout")
        table.put("checkout", b"...", expected=entry.version)
        for change in table.watch(prefix="check"): ...

A table is read whole into memory and kept up to date. How a read becomes linearizable: it asks the broker where the
stream ends (`stream`; callers at the same time share one question) and waits until the view has been read up to there.
How a write with an expected version is safe: the record carries the version and the position up to which the view was
read, and the broker compares under the order of its log (docs/tables.md); what the client compares before only spares a
request.

Pure, with moments passed in: `view` (records in, changes out), `freshness` (whether a deletion can have been missed),
`position` (where a watcher is), `documents` (JSON and merge patches), `entry`, `errors`.

Threads: `reader` alone reads the stream and changes the view; `checker` asks every few seconds whether it is still the
same stream; `writer` has one for each producer that takes its answers. `live` is the view under its lock, which
everybody reads; `watch` what a watcher has not been given yet. `own_writes` tells the records that were sent from here
when they are read. `table` puts all of it together.

It talks to the log as any Kafka client does, through librdkafka, and imports nothing of the broker. It works with other
servers that speak the protocol too, but for expected versions, which only Logboom compares.
"""

from logboom.table.entry import ABSENT, Change, Entry
from logboom.table.errors import (
    AmbiguousKeyError,
    DocumentError,
    NoSuchTableError,
    NotATableError,
    TableError,
    TableTimeoutError,
    UnknownOutcomeError,
    VersionConflictError,
    WriteRefusedError,
)
from logboom.table.table import Table
from logboom.table.watch import Watch

__all__ = [
    "ABSENT",
    "AmbiguousKeyError",
    "Change",
    "DocumentError",
    "Entry",
    "NoSuchTableError",
    "NotATableError",
    "Table",
    "TableError",
    "TableTimeoutError",
    "UnknownOutcomeError",
    "VersionConflictError",
    "Watch",
    "WriteRefusedError",
]
