"""Reads Spark's own checkpoint of a query: which batches were planned and committed, and up to which offsets.

Beside each file there is one with its checksums, written by Hadoop's local file system: `.7.crc` for `7`. A file that
does not match its checksums is rejected, because these files decide where a query continues and what may be deleted.

Knows the files of Spark's offset log and commit log (version 1 of the source API's JSON, with or without the names of
sources). Must not know what a query does.
"""

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from logboom.pipeline.checkpoint.checked import DamagedError
from logboom.pipeline.checkpoint.files import sync_dir

Offsets = Mapping[str, Mapping[int, int]]
"""Stream -> partition -> offset."""

ROUTER_ADVICE: Final = (
    "remove the files of this number and of higher ones from offsets/ and commits/, with those of their checksums "
    "(.NUMBER.crc): the records of these batches are then read again, and their output may appear twice"
)
"""What to do if the router's query has a damaged file. `sources/` holds the offsets at which its first batch began."""
DELIVERY_ADVICE: Final = (
    "remove the sink's directory below deliveries/: the sink then begins with new records, and `logboom pipeline "
    "replay FILE --sink NAME --from TIME` delivers the missing events, some of them perhaps a second time"
)
"""The advice for the query of a sink. Its batches must not be planned again, since the sink recognises a delivered
batch by its number."""
_MAGIC: Final = b"crc\0"
_HEAD_BYTES: Final = 8
_SUM_BYTES: Final = 4


def last_committed(query: Path) -> int | None:
    """The newest committed batch; None before the first."""
    return _newest(query / "commits")


def unfinished_batch(query: Path) -> int | None:
    """The batch that is repeated at the next start; None if the last planned batch is committed."""
    planned, committed = _newest(query / "offsets"), last_committed(query)
    return None if planned is None or planned == committed else planned


def offsets_of(query: Path, batch: int) -> Offsets:
    """The end offsets of a batch in its sources; empty for a batch that Spark has forgotten or never planned."""
    path = query / "offsets" / str(batch)
    found: dict[str, Mapping[int, int]] = {}
    if not path.exists():
        return found
    for line in _checked(path, _advice(query)).decode().splitlines()[2:]:  # after the version and the settings
        _, brace, rest = line.partition("{")
        if brace:  # the name of the source comes first; a source that has read nothing has no offsets
            found.update(by_partition(json.loads(brace + rest)))
    return found


def first_offsets(query: Path) -> Offsets:
    """The offsets at which the first batch began in each source; empty before the first batch.

    Spark's Kafka source keeps them in a file of its own: a zero byte, `v1` and JSON (KafkaSourceInitialOffsetWriter).
    """
    found: dict[str, Mapping[int, int]] = {}
    for path in sorted(query.glob("sources/*/0")):
        _, brace, rest = _checked(path, _advice(query)).decode().partition("{")
        found.update(by_partition(json.loads(brace + rest)))
    return found


def check_query_is_whole(query: Path) -> None:
    """Checks the files from which a query continues at its next start.

    :raises DamagedError: one of them differs from what Spark wrote.
    """
    advice, planned = _advice(query), _newest(query / "offsets")
    begun = [query / "metadata", *query.glob("sources/*/0")]
    # Spark reads where the newest batch ends and where the one before it ended.
    last = [] if planned is None else [query / "offsets" / str(number) for number in (planned - 1, planned)]
    done = last_committed(query)
    committed = [] if done is None else [query / "commits" / str(done)]
    for path in (*begun, *last, *committed):
        if path.exists():
            _checked(path, advice)


def _advice(query: Path) -> str:
    return DELIVERY_ADVICE if query.parent.parent.name == "deliveries" else ROUTER_ADVICE


def _checked(path: Path, advice: str) -> bytes:
    """The content of a file; DamagedError if it does not match its checksums.

    A file without checksums is accepted: Spark writes them after the file and syncs neither, so a power failure may
    leave a checksum file that ends before the first checksum. Hadoop then also reads the file without them
    (`ChecksumFileSystem.ChecksumFSInputChecker` continues after the EOFException).
    """
    data, beside = path.read_bytes(), path.with_name(f".{path.name}.crc")
    if not data:
        raise DamagedError(path, "it is empty", advice)
    try:
        sums = beside.read_bytes()
    except FileNotFoundError:
        return data
    if len(sums) < _HEAD_BYTES:
        return data
    chunk = int.from_bytes(sums[len(_MAGIC) : _HEAD_BYTES])
    if not sums.startswith(_MAGIC) or not chunk:
        raise DamagedError(
            beside, "it holds no checksums", f"if {path.name} is intact, remove this file; else {advice}"
        )
    wanted = b"".join(zlib.crc32(data[at : at + chunk]).to_bytes(_SUM_BYTES) for at in range(0, len(data), chunk))
    if sums[_HEAD_BYTES:] != wanted:
        raise DamagedError(path, f"it does not match the checksums in {beside.name}", advice)
    return data


def durably_committed(query: Path) -> Offsets | None:
    """The end offsets of the last committed batch, after syncing them to disk; None before the first.

    Spark does not sync these files: after a power cut they might be older than what others have relied on.
    """
    last = last_committed(query)
    if last is None:
        return None
    _sync(query / "offsets" / str(last))
    _sync(query / "commits" / str(last))
    return offsets_of(query, last)


def by_partition(tree: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[int, int]]:
    """Offsets from JSON, in which partition numbers are strings."""
    return {stream: {int(number): offset for number, offset in ends.items()} for stream, ends in tree.items()}


def _newest(directory: Path) -> int | None:
    return max((int(path.name) for path in directory.glob("*") if path.name.isdigit()), default=None)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_dir(path.parent)
