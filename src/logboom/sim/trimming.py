"""A client that deletes the oldest records of partitions (DeleteRecords) while others write and read them."""

import asyncio
from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import Offset
from logboom.client.messages import Api
from logboom.kafka.wire.messages import milliseconds
from logboom.sim.client import AskError, RefusedError, SimClient, TopicPartition, check
from logboom.sim.session import ClientContext

_DELETE_RECORDS: Final[Api] = (21, 1)
_PAUSE_MAX_S: Final = 1.0


class Trimmer:
    """Deletes records and writes down how far it asked and what it was told."""

    def __init__(self, context: ClientContext) -> None:
        self._session = context.session()
        self._partitions = context.partitions
        self._history = context.history
        self._phase = context.phase
        self._chance = context.chance
        self._pause_max_s = _PAUSE_MAX_S * context.stretch

    async def run(self) -> None:
        """Delete until the phase ends."""
        while self._phase.producing:
            await asyncio.sleep(self._chance.uniform(0, self._pause_max_s))
            try:
                await self._delete(await self._session.client(), self._chance.choice(self._partitions))
            except AskError:
                await self._session.failed()
            except RefusedError as error:
                await self._session.refused(error)
        self._session.close()

    async def _delete(self, client: SimClient, where: TopicPartition) -> None:
        history = self._history
        known = history.start_known(where)
        start, end = await client.start_offset(where), await client.end_offset(where)
        history.start_seen(where, start, known)
        if end == start:
            return
        upto = self._chance.randint(start, end)
        history.starts_max[where] = Offset(max(upto, history.starts_max.get(where, 0)))
        history.delete(where, await self._delete_before(client, where, upto))
        if self._chance.random() < 0.1:
            # Records above the high-water mark are not committed, so nobody may delete them.
            try:
                await self._delete_before(client, where, end + 1_000_000)
            except RefusedError as error:
                if error.code is not ErrorCode.offset_out_of_range:
                    raise
            else:
                history.violated(f"records of {where} were deleted beyond its end")

    async def _delete_before(self, client: SimClient, where: TopicPartition, offset: int) -> Offset:
        parts = [{"partition_index": where.partition, "offset": offset}]
        topics = [{"name": where.stream, "partitions": parts}]
        answer: Any = await client.ask(_DELETE_RECORDS, topics=topics, timeout=milliseconds(5_000))
        result = answer.topics[0].partitions[0]
        check(result.error_code)
        return Offset(result.low_watermark)
