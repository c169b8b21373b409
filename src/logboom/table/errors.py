"""What can go wrong with a table; each message says what to do next."""

from collections.abc import Sequence

from confluent_kafka import KafkaError

from logboom.base.errors import LogboomError
from logboom.table.entry import Entry, quoted


class TableError(LogboomError):
    """Base of all errors of this package; its text is one sentence for a person."""


def error_text(error: Exception) -> str:
    """What an error says to a person; one of librdkafka by its own words and its name."""
    inner = error.args[0] if error.args else error
    return f"{inner.str()} ({inner.name()})" if isinstance(inner, KafkaError) else str(error)


class NoSuchTableError(TableError):
    """There is no stream of this name."""


class NotATableError(TableError):
    """The stream is not compacted, or cannot do what is asked of it."""


class TableTimeoutError(TableError):
    """The table could not be read to its end in time. Nothing was written."""


class UnknownOutcomeError(TableError):
    """A record was sent and the answer did not come in time: it may be in the stream, now or later, or not at all."""


class WriteRefusedError(TableError):
    """The broker refused a record for good: it is not in the stream."""


class DocumentError(TableError):
    """A value that has to be a JSON document is none, or could not be written back without changing it."""


class VersionConflictError(TableError):
    """Another writer was first: the key does not have the version that the write expected. Nothing was written."""

    def __init__(self, stream: str, key: bytes, expected: int, current: Entry | None) -> None:
        wanted = f"version {expected}" if expected >= 0 else "no value"
        found = f"it has version {current.version}" if current else "there is none"
        super().__init__(
            f"key {quoted(key)} of table {stream!r} was to have {wanted}, but {found}: "
            "another writer was first; read it again and decide again"
        )
        self.expected = expected
        """The version the write named, -1 for no value."""
        self.current = current
        """What the key holds now; None where it holds nothing."""


class AmbiguousKeyError(TableError):
    """A key has values in more than one partition, so that it has no one latest value."""

    def __init__(self, stream: str, key: bytes, entries: Sequence[Entry]) -> None:
        places = " and ".join(f"{entry.partition} (version {entry.version})" for entry in entries)
        super().__init__(
            f"key {quoted(key)} of table {stream!r} has values in partitions {places}: writers with different "
            "partitioners, or partitions that were added later, did this; delete it in all partitions but one"
        )
        self.entries = tuple(entries)
        """Its value in each partition, in the order of partitions."""
