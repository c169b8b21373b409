"""Published messages, and what came of them."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.broker.partition.publications import Published, Terms
from logboom.broker.partition.replica import Partition
from logboom.records import MESSAGE_ID, Record, iter_batches, iter_records, record_content


class Message(NamedTuple):
    """A message that a test publishes."""

    value: bytes
    id: bytes | None = None
    end: int | None = None
    """The offset at which it expects to be stored."""
    last_id: bytes | None = None
    key: bytes | None = None

    @property
    def content(self) -> bytes:
        """As a door packs it."""
        return record_content(self.key, self.value, () if self.id is None else ((MESSAGE_ID, self.id),))

    @property
    def terms(self) -> Terms | None:
        """What it asks for, if anything."""
        terms = Terms(self.id, None if self.end is None else Offset(self.end), self.last_id)
        return None if terms == Terms() else terms


def publish_soon(
    broker: Broker, partition: Partition, *messages: Message, acks: int = -1, client_id: str = "test"
) -> "asyncio.Future[Published]":
    """Publish messages together."""
    future: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
    broker.publishing.publish(
        partition,
        [one.content for one in messages],
        {place: one.terms for place, one in enumerate(messages) if one.terms is not None},
        acks=acks,
        client_id=client_id,
        done=future.set_result,
    )
    return future


async def publish(
    broker: Broker, partition: Partition, *messages: Message, acks: int = -1
) -> list[int | type[LogboomError]]:
    """Publish messages together; the offset of each, that of a duplicate below 0 (-1 for offset 0), or the error."""
    return outcomes(await publish_soon(broker, partition, *messages, acks=acks))


def outcomes(published: Published) -> list[int | type[LogboomError]]:
    """As `publish` returns them."""
    return [
        type(one) if isinstance(one, LogboomError) else -1 - one if place in published.duplicates else int(one)
        for place, one in enumerate(published.outcomes)
    ]


async def records_of(partition: Partition) -> list[Record]:
    """All committed records."""
    records: list[Record] = []
    offset = partition.log_start_offset
    while data := await partition.reads.read(offset, 1 << 20):
        for position, header in iter_batches(data):
            records += iter_records(data, position, header, 1 << 26)
            offset = header.next_offset
    return records


async def values_of(partition: Partition) -> Sequence[bytes | None]:
    """The values of all committed records."""
    return [one.value for one in await records_of(partition)]
