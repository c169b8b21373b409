"""Producers and consumers of a run.

Everything they do and see goes into the History. A producer keeps one batch under way. An idempotent one sends it until
it is acknowledged; one without an id sends it once, and whether an unacknowledged record is in the log stays open: with
acks=0 that is so for all of its records. On one node acks=1 promises what acks=all does; in a cluster a leader that
dies may take such a record with it, but not one that was read.
"""

import asyncio
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import Offset
from logboom.records import Record, build_batch
from logboom.sim.client import AskError, RefusedError, SimClient, TopicPartition
from logboom.sim.history import History, Value
from logboom.sim.sending import IdempotentSender
from logboom.sim.session import NEVER_APPENDED, ClientContext

_POLL_WAIT_MS: Final = 200
_REST_MAX_S: Final = 0.2
_COMMIT_CHANCE: Final = 0.2
_ALL: Final = -1

_PADDING_BYTES: Final = (0, 0, 0, 100, 500)
"""How many bytes longer than its number the values of one batch are."""


def records_of(values: Sequence[Value], chance: Random) -> list[Record]:
    """Records with these values, made longer by as much as `chance` has it."""
    padding = b" " * chance.choice(_PADDING_BYTES)
    return [Record(Offset(n), 0, None, b"%d" % value + padding, ()) for n, value in enumerate(values)]


class Producer:
    """One producer. Its values are numbers that rise, none of which another producer has."""

    def __init__(
        self,
        context: ClientContext,
        *,
        values: "count[Value]",
        acks: int,
        pause_max_s: float,
        leader_acks_count: bool = True,
    ) -> None:
        """`acks` is all (-1) for an idempotent producer; others send each batch once. `leader_acks_count`: whether
        acks=1 promises what acks=all does, as on one node."""
        self.name = context.name
        self._session = context.session()
        self._partitions = context.partitions
        self._history = context.history
        self._phase = context.phase
        self._chance = context.chance
        self._values = values
        self._acks = acks
        self._leader_acks_count = leader_acks_count
        self._pause_max_s = pause_max_s
        self._sender = IdempotentSender(self._session)

    async def run(self) -> None:
        """Produce until the phase ends."""
        while self._phase.producing:
            where = self._chance.choice(self._partitions)
            values = [next(self._values) for _ in range(self._chance.randint(1, 20))]
            if self._acks == _ALL:
                await self._send_until_acked(where, values)
            else:
                await self._send_once(where, values)
            await asyncio.sleep(self._chance.uniform(0, self._pause_max_s))
        self._session.close()

    async def _send_once(self, where: TopicPartition, values: Sequence[Value]) -> None:
        self._history.send(self.name, where, values)
        try:
            client = await self._session.client()
            base_offset = await client.produce(where, bytes(build_batch(records_of(values, self._chance))), self._acks)
        except AskError:
            await self._session.failed()
        except RefusedError as error:
            if error.code in NEVER_APPENDED:
                self._history.refuse(values)
            await self._session.refused(error)
        else:
            if base_offset is not None and self._leader_acks_count:
                self._history.acknowledge(where, base_offset, values)

    async def _send_until_acked(self, where: TopicPartition, values: Sequence[Value]) -> None:
        self._history.send(self.name, where, values)
        base_offset = await self._sender.send(where, records_of(values, self._chance))
        if base_offset is not None:
            self._history.acknowledge(where, base_offset, values)


class Consumer:
    """One consumer of all partitions, each from its start; it commits where it stands now and then."""

    def __init__(self, context: ClientContext) -> None:
        self.name = context.name
        self._context = context
        self._session = context.session()
        self._history = context.history
        self._phase = context.phase
        self._chance = context.chance
        self._positions = dict.fromkeys(context.partitions, Offset(0))
        self._committed: dict[TopicPartition, tuple[Offset, Offset]] = {}
        """For each partition, the last offset whose commit was acknowledged, and the last one that was sent."""

    async def run(self) -> None:
        """Consume until the phase ends."""
        while self._phase.consuming:
            where = self._chance.choice(tuple(self._positions))
            try:
                client = await self._session.client()
                await self._poll(client, where)
                if self._chance.random() < _COMMIT_CHANCE:
                    await self._commit(client, where)
            except AskError:
                await self._session.failed()
            except RefusedError as error:
                await self._session.refused(error)
            await self._context.rest(_REST_MAX_S)
        self._session.close()

    async def _poll(self, client: SimClient, where: TopicPartition) -> None:
        self._positions[where] = await poll(client, where, self._positions[where], self._history)

    async def _commit(self, client: SimClient, where: TopicPartition) -> None:
        acked, sent = self._committed.get(where, (Offset(-1), Offset(-1)))
        found = await client.committed(self.name, where)
        if not acked <= found <= sent:
            self._history.violated(f"{self.name} committed {acked} to {sent}, and finds {found} for {where}")
        position = self._positions[where]
        self._committed[where] = (acked, position)
        await client.commit(self.name, where, position)
        self._committed[where] = (position, position)
        self._history.commits += 1


async def poll(client: SimClient, where: TopicPartition, position: Offset, history: History) -> Offset:
    """Read on from a position; the next one, which is the log's start where the position was deleted."""
    try:
        polled = await client.fetch(where, position, _POLL_WAIT_MS)
    except RefusedError as error:
        if error.code is not ErrorCode.offset_out_of_range:
            raise
        known = history.start_known(where)
        start = await client.start_offset(where)
        history.start_seen(where, start, known)
        if start <= position and not (history.starts_go_back and where in history.starts_max):
            history.violated(f"{where} starts at {start}, and {position} was out of range")
        return start
    history.poll(where, position, [(offset, int(value)) for offset, value in polled.records])
    return polled.next_offset


async def read_all(client: SimClient, where: TopicPartition, history: History) -> list[tuple[Offset, Value]]:
    """Every committed record of a partition from its start on, which retention may move meanwhile."""
    records: list[tuple[Offset, Value]] = []
    known = history.start_known(where)
    end = await client.end_offset(where)
    position = start = Offset(0)
    while position < end:
        try:
            polled = await client.fetch(where, position, _POLL_WAIT_MS)
        except RefusedError as error:
            if error.code is not ErrorCode.offset_out_of_range:
                raise
            start = await client.start_offset(where)
            if start <= position:
                raise
            position = start
        else:
            records += [(offset, int(value)) for offset, value in polled.records]
            position = polled.next_offset
    history.start_seen(where, start, known)
    return [(offset, value) for offset, value in records if offset >= start]
