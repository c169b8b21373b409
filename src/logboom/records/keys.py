"""The keys of a batch's records, and where each record lies, without making an object of any value or header.

For what must know keys and nothing else: key compaction, and the check that a compacted stream's records have one.
"""

from collections.abc import Iterator
from itertools import islice

from logboom.base.errors import CorruptBatchError
from logboom.base.ports import Bytes
from logboom.records.header import BatchHeader
from logboom.records.record import records_body
from logboom.records.varint import CONTINUES, read_varint

KeyedRecord = tuple[int, bytes | None, bool, int, int]
"""Offset delta, key, whether there is a value (a record without one is a tombstone), and where the record begins and
ends in the plain records of its batch."""


def keyed_records(body: bytes, count: int, position: int = 0) -> Iterator[KeyedRecord]:
    """The `count` records that `body` consists of from `position` on, as the batch's records are when they are not
    compressed.

    CorruptBatchError where a length contradicts another. The records were checked when they were produced, so this
    finds only what is damaged, and looks no further than at the length of the value.
    """
    end = position
    try:
        for _ in range(count):
            start = end
            # Numbers of one byte, and lengths of two, are read in place, as nearly all are: a call for each would take
            # twice the time.
            first, second = body[start], body[start + 1]
            if first >= CONTINUES > second and not first & 1:
                length, at = (first & 0x7F | second << 7) >> 1, start + 2
            else:
                length, at = read_varint(body, start)
            end = at + length
            at += 1  # attributes
            while body[at] >= CONTINUES:  # the timestamp's delta is not needed
                at += 1
            at += 1
            delta = body[at]
            if delta < CONTINUES:
                at += 1
                delta >>= 1
            else:
                delta, at = read_varint(body, at)
            key_length = body[at]
            if key_length < CONTINUES:
                at += 1
                key_length = (key_length >> 1) ^ -(key_length & 1)
            else:
                key_length, at = read_varint(body, at)
            key = None
            if key_length >= 0:
                key = body[at : at + key_length]
                at += key_length
            if not at < end <= len(body):
                raise CorruptBatchError("A record reaches past its end.")
            # The value's length is negative for none, which is an odd number in zigzag.
            yield delta, key, not body[at] & 1, start, end
    except IndexError:
        raise CorruptBatchError("A record reaches past the end of its batch.") from None
    if end != len(body):
        raise CorruptBatchError("Bytes follow the last record of a batch.")


def records_without_key(
    buffer: Bytes, position: int, header: BatchHeader, max_decompressed_bytes: int, *, most: int
) -> list[int]:
    """The indexes of the records without a key in the whole batch at `position`, the first `most` of them.

    Raises as `decompress` does, and CorruptBatchError where a length contradicts another.
    """
    body = records_body(buffer, position, header, max_decompressed_bytes)
    numbered = enumerate(keyed_records(body, header.records_count))
    return list(islice((index for index, (_, key, _, _, _) in numbered if key is None), most))
