"""Clients that count in a compacted stream, each record with the version that it expects of its key.

A client reads what is committed, adds one to a counter that it knows, and sends that with the offset of the record it
has read (header `logboom-expected-offset`). Of two that have read the same record one is refused, whatever leader they
find. So of each counter no number is ever stored twice, no refused record is there, and the last number is the count of
the records that were acknowledged, and of some whose fate nobody was told.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import Offset
from logboom.records import EXPECTED_OFFSET, READ_TO, Record, build_batch
from logboom.sim.client import AskError, RefusedError, SimClient, TopicPartition
from logboom.sim.history import History
from logboom.sim.session import ClientContext

_KEYS: Final = 3
_PAUSE_MAX_S: Final = 0.3
_POLL_WAIT_MS: Final = 50
_SAYS_HOW_FAR_CHANCE: Final = 0.5
_PADDING: Final = b" " * 300
_NOTHING: Final = (Offset(-1), 0)


@dataclass
class Counts:
    """What the counting clients of a run were told. Life: that of the run."""

    history: History
    where: TopicPartition
    ids: "count[int]" = field(default_factory=count)
    sent: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """Key and number of each record that was ever sent, by its id."""
    acked: dict[int, Offset] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    """Records whose condition did not hold."""

    def read(self, records: Sequence[Any], latest: dict[bytes, tuple[Offset, int]]) -> None:
        """Records as they come in the stream, behind those of which `latest` has offset and number of each key."""
        for record in records:
            key, (number, made) = bytes(record.key), map(int, record.value.split())
            what = f"{key.decode()} is {number} at {record.offset}"
            if self.sent.get(made) != (key, number):
                self.history.violated(f"{what}, and nobody has written that")
            if made in self.refused:
                self.history.violated(f"{what}, which was refused")
            if self.acked.get(made, record.offset) != record.offset:
                self.history.violated(f"{what}, which was acknowledged at {self.acked[made]}")
            if number <= latest.get(key, _NOTHING)[1]:
                self.history.violated(f"{what}, behind {latest[key][1]} at {latest[key][0]}: a count is lost")
            latest[key] = (Offset(record.offset), number)

    async def check(self, client: SimClient) -> None:
        """Compare the whole stream with what was acknowledged. Raises AskError and RefusedError."""
        latest: dict[bytes, tuple[Offset, int]] = {}
        await read_on(client, self, Offset(0), latest)
        for key in sorted({key for key, _ in self.sent.values()}):
            acked = [self.sent[made][1] for made in self.acked if self.sent[made][0] == key]
            maybe = [number for made, (of, number) in self.sent.items() if of == key and made not in self.refused]
            number = latest.get(key, _NOTHING)[1]
            if len(set(acked)) < len(acked):
                self.history.violated(f"a number of {key.decode()} was acknowledged twice")
            if not max(acked, default=0) <= number or not len(acked) <= number <= len(maybe):
                self.history.violated(f"{key.decode()} is {number}, and was raised {len(acked)} to {len(maybe)} times")


async def read_on(
    client: SimClient, counts: Counts, position: Offset, latest: dict[bytes, tuple[Offset, int]]
) -> Offset:
    """Read the stream to its end; the next position. Raises AskError and RefusedError."""
    end = await client.end_offset(counts.where)
    while position < end:
        records, position = await client.fetch_records(counts.where, position, _POLL_WAIT_MS)
        counts.read(records, latest)
    return position


class Counter:
    """One client. Life: a phase of the run."""

    def __init__(self, context: ClientContext, counts: Counts) -> None:
        self._session = context.session()
        self._phase = context.phase
        self._chance = context.chance
        self._pause_max_s = _PAUSE_MAX_S * context.stretch
        self._counts = counts
        self._position = Offset(0)
        self._latest: dict[bytes, tuple[Offset, int]] = {}

    async def run(self) -> None:
        """Count until the phase ends."""
        while self._phase.producing:
            try:
                client = await self._session.client()
                self._position = await read_on(client, self._counts, self._position, self._latest)
                await self._raise(client)
            except AskError:
                await self._session.failed()
            except RefusedError as error:
                await self._session.refused(error)
            await asyncio.sleep(self._chance.uniform(0, self._pause_max_s))
        self._session.close()

    async def _raise(self, client: SimClient) -> None:
        counts, key = self._counts, b"counter-%d" % self._chance.randrange(_KEYS)
        expected, number = self._latest.get(key, _NOTHING)
        made = next(counts.ids)
        counts.sent[made] = (key, number + 1)
        headers: list[tuple[str, bytes | None]] = [(EXPECTED_OFFSET.decode(), b"%d" % expected)]
        if self._chance.random() < _SAYS_HOW_FAR_CHANCE:
            headers.append((READ_TO.decode(), b"%d" % self._position))
        record = Record(Offset(0), 0, key, b"%d %d" % (number + 1, made) + _PADDING, tuple(headers))
        try:
            offset = await client.produce(counts.where, bytes(build_batch([record])))
        except RefusedError as error:
            if error.code is not ErrorCode.invalid_record:
                raise
            counts.refused.add(made)
        else:
            assert offset is not None
            counts.acked[made] = Offset(offset)
