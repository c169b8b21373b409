"""Whether a part of a log has a record with a header, over the log of a real partition."""

from pathlib import Path

import pytest
from tests.broker.node import append, append_soon, running
from tests.support.simulated import run

from logboom.base.errors import OffsetOutOfRangeError
from logboom.base.ids import Offset
from logboom.broker.partition import header_scan
from logboom.broker.partition.header_scan import may_have_header
from logboom.broker.partition.replica import Partition
from logboom.records import Codec, Record, build_batch

NAME = b"logboom-subject"


async def found(partition: Partition, start: int, end: int) -> bool:
    log = partition.log
    start_soon, limit_bytes = partition.reads.start, log.config.max_decompressed_bytes
    return await may_have_header(log.reader, start_soon, NAME, Offset(start), Offset(end), limit_bytes)


def test_records_of_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("s")
            partition = broker.replicas.find("s", 0)
            await append(partition, b"0", NAME, b"2", bytes(3_000_000 // 4))  # in a value it is none
            of_nats = Record(Offset(0), 1_000, None, b"4", ((NAME.decode(), b"orders"),))
            await append_soon(partition, build_batch([of_nats], codec=Codec.LZ4))
            await append(partition, b"5", codec=Codec.GZIP)
            looks = [await found(partition, start, end) for start, end in ((0, 4), (0, 5), (4, 5), (5, 6), (5, 5))]
            assert looks == [False, True, True, False, False]
            with pytest.raises(OffsetOutOfRangeError):
                await found(partition, 7, 9)
            monkeypatch.setattr(header_scan, "SCAN_BYTES_MAX", 1_000)
            assert await found(partition, 0, 4), "it is not read, so there may be one"

    run(body)
