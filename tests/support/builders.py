"""Batches that the builders of other clients make: aiokafka's and kafka-python's, which have one interface."""

from collections.abc import Sequence

from logboom.records import Codec

Row = tuple[int, bytes | None, bytes | None]
"""Timestamp, key and value."""


def built_by(
    builder: type, codec: Codec, rows: Sequence[Row], headers: Sequence[tuple[str, bytes | None]]
) -> bytearray:
    """A batch of the idempotent producer 123, epoch 2, from sequence 9 on."""
    made = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=123,
        producer_epoch=2,
        base_sequence=9,
        batch_size=1 << 20,
    )
    for number, (timestamp_ms, key, value) in enumerate(rows):
        assert made.append(number, timestamp_ms, key, value, headers)
    return bytearray(made.build())
