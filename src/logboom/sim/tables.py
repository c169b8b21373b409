"""A client that keeps a table in a compacted stream: it writes and deletes keys, and now and then reads all of it.

It alone writes to its partition, and not while it reads. So the table that a reading gives is known exactly, whatever
compaction does meanwhile: of each key the last value, and nothing of a deleted one. Every record that is still there
lies at the offset where it was acknowledged.
"""

import asyncio
from typing import Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import Offset
from logboom.records import Record
from logboom.sim.client import AskError, RefusedError, SimClient
from logboom.sim.sending import IdempotentSender
from logboom.sim.session import ClientContext

TABLE_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "2000",
}
_READING_MAX_S: Final = 1.0
"""A longer reading may miss a tombstone that compaction removes meanwhile (delete.retention.ms): it is not checked."""
_KEYS: Final = 12
_DELETE_CHANCE: Final = 0.2
_READ_CHANCE: Final = 0.1
_PAUSE_MAX_S: Final = 0.1
_POLL_WAIT_MS: Final = 50
_PADDING: Final = b" " * 300


class TableKeeper:
    """Works on the first of its partitions."""

    def __init__(self, context: ClientContext) -> None:
        self.readings = 0
        """Whole readings that were checked."""
        self.compacted = 0
        """Acknowledged records that the last reading did not find any more."""
        self._where = context.partitions[0]
        self._session = context.session()
        self._sender = IdempotentSender(self._session)
        self._history = context.history
        self._phase = context.phase
        self._chance = context.chance
        self._pause_max_s = _PAUSE_MAX_S * context.stretch
        self._table: dict[bytes, bytes | None] = {}
        self._written: dict[Offset, tuple[bytes, bytes | None]] = {}
        self._last_value = 0

    async def run(self) -> None:
        """Work until the phase ends."""
        while self._phase.producing:
            await self._write()
            if self._chance.random() < _READ_CHANCE:
                try:
                    await self.check(await self._session.client())
                except AskError:
                    await self._session.failed()
                except RefusedError as error:
                    await self._session.refused(error)
            await asyncio.sleep(self._chance.uniform(0, self._pause_max_s))
        self._session.close()

    async def _write(self) -> None:
        entries = [self._entry() for _ in range(self._chance.randint(1, 10))]
        records = [Record(Offset(n), 0, key, value, ()) for n, (key, value) in enumerate(entries)]
        base_offset = await self._sender.send(self._where, records)
        if base_offset is None:
            return
        for offset, (key, value) in enumerate(entries, base_offset):
            self._written[Offset(offset)] = (key, value)
            self._table[key] = value

    def _entry(self) -> tuple[bytes, bytes | None]:
        key = b"key-%d" % self._chance.randrange(_KEYS)
        if self._chance.random() < _DELETE_CHANCE:
            return key, None
        self._last_value += 1
        return key, b"%d" % self._last_value + _PADDING

    async def check(self, client: SimClient) -> None:
        """Read the whole stream and compare. Raises AskError and RefusedError."""
        await self.check_copy(client, await client.end_offset(self._where))

    async def check_copy(self, client: SimClient, end: Offset) -> None:
        """The same up to an offset, as the broker itself has it that this is a client of."""
        began_s = asyncio.get_running_loop().time()
        records = await self._read(client, end)
        if asyncio.get_running_loop().time() - began_s > _READING_MAX_S:
            return
        self.readings += 1
        self.compacted = len(self._written) - len(records)
        found: dict[bytes, bytes | None] = {}
        for offset, key, value in records:
            if self._written.get(offset) != (key, value):
                self._history.violated(f"the table's record {key!r} at {offset} is not the one that was acknowledged")
            found[key] = value
        for key, value in self._table.items():
            if found.get(key) != value:
                self._history.violated(
                    f"the table has {_short(found.get(key))} for {key!r}, where {_short(value)} was acknowledged"
                )

    async def _read(self, client: SimClient, end: Offset) -> list[tuple[Offset, bytes, bytes | None]]:
        records: list[tuple[Offset, bytes, bytes | None]] = []
        position = Offset(0)
        while position < end:
            try:
                fetched, next_offset = await client.fetch_records(self._where, position, _POLL_WAIT_MS)
            except RefusedError as error:
                if error.code is ErrorCode.offset_out_of_range:
                    self._history.violated(f"{position} of the table was deleted: compaction deletes by key alone")
                raise
            if [record.offset for record in fetched] != sorted({record.offset for record in fetched}):
                self._history.violated(f"the table's records come out of order, from {position} on")
            records += [(record.offset, record.key or b"", record.value) for record in fetched]
            position = next_offset
        return records


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else repr(value[:20].rstrip())
