"""Producers and consumers of a run: each a process of its own with one connection, which it makes anew when it breaks.

Everything they do and see goes into the History. A producer keeps one batch under way. An idempotent one sends it until
it is acknowledged; one without an id sends it once, and whether an unacknowledged record is in the log stays open.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import Offset, ProducerEpoch, ProducerId
from logboom.records import Record, build_batch
from logboom.sim.client import AskError, RefusedError, SimClient, Where
from logboom.sim.history import History, Value

_PAUSE_AFTER_ERROR_S: Final = 0.05
_POLL_WAIT_MS: Final = 200
_COMMIT_CHANCE: Final = 0.2

_FENCED: Final = frozenset(
    (
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.duplicate_sequence_number,
    )
)
"""With one batch under way, an idempotent producer must never be told any of these."""

_PASSING: Final = frozenset(
    (
        ErrorCode.kafka_storage_error,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.leader_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.unknown_topic_or_partition,
    )
)
"""Refusals that a broker in trouble may give."""


@dataclass
class Phase:
    """What the clients are told to do; changed by the scenario."""

    producing: bool = True
    consuming: bool = True


class Session:
    """A client's connection to the broker, made anew after each error."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self._address = address
        self._name = name
        self._client: SimClient | None = None

    async def client(self) -> SimClient:
        """The connection. Raises AskError where none can be had."""
        if self._client is None:
            self._client = await SimClient.connect(self._address, self._name)
        return self._client

    def close(self) -> None:
        """Hang up."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def failed(self) -> None:
        """The last request failed: hang up, and wait a little."""
        self.close()
        await asyncio.sleep(_PAUSE_AFTER_ERROR_S)


class Producer:
    """One producer. Its values are numbers that rise, none of which another producer has."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        partitions: Sequence[Where],
        history: History,
        phase: Phase,
        chance: Random,
        *,
        values: "count[Value]",
        idempotent: bool,
        pause_max_s: float,
    ) -> None:
        self.name = name
        self._session = Session(address, name)
        self._partitions = partitions
        self._history = history
        self._phase = phase
        self._chance = chance
        self._values = values
        self._idempotent = idempotent
        self._pause_max_s = pause_max_s
        self._id: tuple[int, int] | None = None
        self._sequences: dict[Where, int] = {}

    async def run(self) -> None:
        """Produce until the phase ends."""
        while self._phase.producing:
            where = self._chance.choice(self._partitions)
            values = [next(self._values) for _ in range(self._chance.randint(1, 20))]
            if self._idempotent:
                await self._send_until_acked(where, values)
            else:
                await self._send_once(where, values)
            await asyncio.sleep(self._chance.uniform(0, self._pause_max_s))
        self._session.close()

    async def _send_once(self, where: Where, values: Sequence[Value]) -> None:
        self._history.send(self.name, where, values)
        try:
            client = await self._session.client()
            base_offset = await client.produce(where, self._batch(where, values))
        except AskError:
            await self._session.failed()
        except RefusedError as error:
            self._check(error)
            await self._session.failed()
        else:
            self._history.acknowledge(where, base_offset, values)

    async def _send_until_acked(self, where: Where, values: Sequence[Value]) -> None:
        sent = False
        while True:
            try:
                client = await self._session.client()
                if self._id is None:
                    self._id = await client.new_producer()
                if not sent:
                    self._history.send(self.name, where, values)
                    sent = True
                base_offset = await client.produce(where, self._batch(where, values))
            except AskError:
                await self._session.failed()
            except RefusedError as error:
                self._check(error)
                await self._session.failed()
                if error.code in _FENCED:
                    self._id = None
                    self._sequences.clear()
                    return
            else:
                self._history.acknowledge(where, base_offset, values)
                self._sequences[where] = self._sequences.get(where, 0) + len(values)
                return

    def _check(self, error: RefusedError) -> None:
        if error.code not in _PASSING:
            self._history.violated(f"{self.name} was refused for {error.code.name}")

    def _batch(self, where: Where, values: Sequence[Value]) -> bytes:
        records = [Record(Offset(n), 0, None, b"%d" % value, ()) for n, value in enumerate(values)]
        if self._id is None:
            return bytes(build_batch(records))
        number, epoch = self._id
        sequence = self._sequences.get(where, 0)
        return bytes(
            build_batch(
                records,
                producer_id=ProducerId(number),
                producer_epoch=ProducerEpoch(epoch),
                base_sequence=sequence,
            )
        )


class Consumer:
    """One consumer of all partitions, each from its start; it commits where it stands now and then."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        partitions: Sequence[Where],
        history: History,
        phase: Phase,
        chance: Random,
    ) -> None:
        self.name = name
        self._session = Session(address, name)
        self._history = history
        self._phase = phase
        self._chance = chance
        self._positions = dict.fromkeys(partitions, Offset(0))
        self._committed: dict[Where, tuple[Offset, Offset]] = {}
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
                if error.code not in _PASSING:
                    self._history.violated(f"{self.name} was refused for {error.code.name}")
                await self._session.failed()
        self._session.close()

    async def _poll(self, client: SimClient, where: Where) -> None:
        position = self._positions[where]
        polled = await client.fetch(where, position, _POLL_WAIT_MS)
        self._history.poll(where, position, [(offset, int(value)) for offset, value in polled.records])
        self._positions[where] = polled.next_offset

    async def _commit(self, client: SimClient, where: Where) -> None:
        acked, sent = self._committed.get(where, (Offset(-1), Offset(-1)))
        found = await client.committed(self.name, where)
        if not acked <= found <= sent:
            self._history.violated(f"{self.name} committed {acked} to {sent}, and finds {found} for {where}")
        position = self._positions[where]
        self._committed[where] = (acked, position)
        await client.commit(self.name, where, position)
        self._committed[where] = (position, position)
        self._history.commits += 1


async def read_all(client: SimClient, where: Where) -> list[tuple[Offset, Value]]:
    """Every committed record of a partition."""
    end = await client.end_offset(where)
    records: list[tuple[Offset, Value]] = []
    position = Offset(0)
    while position < end:
        polled = await client.fetch(where, position, _POLL_WAIT_MS)
        records += [(offset, int(value)) for offset, value in polled.records]
        position = polled.next_offset
    return records
