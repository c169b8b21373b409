"""Whether a part of a log has a record with a header of some name, read in slices that are short enough for a reader
thread."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from logboom.base.ids import Offset
from logboom.base.units import MIB
from logboom.broker.partition.slices import SLICE_BYTES, SliceReader
from logboom.records import header_values, iter_batches, records_body

SCAN_BYTES_MAX: Final = 16 * MIB
"""As much is read; some 0.1 s."""


async def may_have_header(
    reader: SliceReader,
    read: Callable[[Callable[[], Offset]], "asyncio.Future[Offset]"],
    name: bytes,
    start: Offset,
    end: Offset,
    max_decompressed_bytes: int,
) -> bool:
    """Whether records from `start` up to `end`, which are written, have such a header; True too where they are more
    than is read. `read` runs a read on a reader thread. Raises LogboomError where the log cannot be read."""

    def step(at: Offset) -> Offset:
        """The next offset to read from; -1: there is one."""
        if at == start and reader.bytes_between(start, end) > SCAN_BYTES_MAX:
            return Offset(-1)
        data, behind = reader.read_with_next_offset(at, SLICE_BYTES, ceiling=end) or (b"", at)
        if behind <= at:
            return Offset(-1)  # cut off meanwhile
        for position, header in iter_batches(data):
            if not header.is_control:
                body = records_body(data, position, header, max_decompressed_bytes)
                if any(True for _ in header_values(body, header.records_count, name)):
                    return Offset(-1)
        return behind

    at = start
    while 0 <= at < end:
        at = await read(partial(step, at))
    return at < 0
