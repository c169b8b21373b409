"""An idempotent producer: one batch in flight, sent again until it is acknowledged."""

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import ProducerEpoch, ProducerId
from logboom.records import Record, build_batch
from logboom.sim.client import AskError, RefusedError, TopicPartition
from logboom.sim.session import Session

_FENCED: Final = frozenset(
    (
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.duplicate_sequence_number,
    )
)
"""With one batch in flight, an idempotent producer must never be told any of these."""


class IdempotentSender:
    """Gets its producer id with the first batch. Life: that of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._batches = 0
        self._id: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}

    async def send(self, where: TopicPartition, records: Sequence[Record]) -> int | None:
        """Send until acknowledged; the base offset. None where the broker fences the producer, which is a violation."""
        self._batches += 1
        batch = (self._session.name, self._batches)
        self._session.history.waits[batch] = where
        try:
            return await self._send(where, records)
        finally:
            del self._session.history.waits[batch]

    async def _send(self, where: TopicPartition, records: Sequence[Record]) -> int | None:
        while True:
            try:
                client = await self._session.client()
                if self._id is None:
                    self._id = await client.new_producer()
                base_offset = await client.produce(where, self._batch(where, records, self._id))
            except AskError:
                await self._session.failed()
            except RefusedError as error:
                await self._session.refused(error)
                if error.code in _FENCED:
                    self._id = None
                    self._sequences.clear()
                    return None
            else:
                self._sequences[where] = self._sequences.get(where, 0) + len(records)
                return base_offset

    def _batch(self, where: TopicPartition, records: Sequence[Record], producer: tuple[int, int]) -> bytes:
        number, epoch = producer
        return bytes(
            build_batch(
                records,
                producer_id=ProducerId(number),
                producer_epoch=ProducerEpoch(epoch),
                base_sequence=self._sequences.get(where, 0),
            )
        )
