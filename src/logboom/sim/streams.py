"""A client that creates streams, writes to them, deletes them and creates them again under the same names.

What must hold: a stream whose creation was acknowledged is there until its deletion is asked for, with every record
that was acknowledged; one whose deletion was acknowledged is gone, and the next of its name begins empty. A creation or
deletion without an answer may still be carried out at any later time, so its name is not used again.
"""

import asyncio
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import Offset
from logboom.client.messages import Api
from logboom.kafka.wire.messages import milliseconds
from logboom.records import Record, build_batch
from logboom.sim.client import AskError, RefusedError, SimClient, TopicPartition, check
from logboom.sim.history import History
from logboom.sim.routing import Address
from logboom.sim.session import Phase, Session

_DELETE_TOPICS: Final[Api] = (20, 3)
_METADATA: Final[Api] = (3, 8)
_CREATE_TOPICS: Final[Api] = (19, 4)
_PAUSE_MAX_S: Final = 0.3
_POLL_WAIT_MS: Final = 100


class StreamMaker:
    """Works on names of its own, one step after the other."""

    def __init__(
        self,
        name: str,
        addresses: Sequence[Address],
        streams: int,
        history: History,
        phase: Phase,
        chance: Random,
    ) -> None:
        self.deletions = 0
        """How many were acknowledged."""
        self._session = Session(addresses, name, history, chance)
        self._history = history
        self._phase = phase
        self._chance = chance
        self._names = (f"made-{number}" for number in count())
        self._exists = {next(self._names): False for _ in range(streams)}
        """The names in use, and whether there is such a stream."""
        self._acked: dict[str, dict[Offset, int]] = {}
        self._last_value = 0

    async def run(self) -> None:
        """Work until the phase ends."""
        while self._phase.producing:
            await asyncio.sleep(self._chance.uniform(0, _PAUSE_MAX_S))
            name = self._chance.choice(tuple(self._exists))
            try:
                await self._step(await self._session.client(), name)
            except AskError:
                await self._session.failed()
            except RefusedError as error:
                await self._session.refused(error)
        self._session.close()

    async def _step(self, client: SimClient, name: str) -> None:
        if not self._exists[name]:
            await self._create(client, name)
        elif self._chance.random() < 0.2:
            await self._delete(client, name)
        elif self._chance.random() < 0.3:
            await self.check(client, name)
        else:
            await self._produce(client, name)

    async def _create(self, client: SimClient, name: str) -> None:
        del self._exists[name]
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": [], "assignments": []}
        try:
            answer = await client.ask(_CREATE_TOPICS, topics=[topic])
            code = answer.topics[0].error_code
            if code is ErrorCode.topic_already_exists:
                self._history.violated(f"{name} is there before it is created")
            check(code)
        except (AskError, RefusedError):
            self._exists[next(self._names)] = False
            raise
        self._exists[name], self._acked[name] = True, {}
        if (end := await client.end_offset(TopicPartition(name, 0))) != 0:
            self._history.violated(f"{name} was just created, and ends at {end}")

    async def _delete(self, client: SimClient, name: str) -> None:
        del self._exists[name]
        try:
            answer = await client.ask(_DELETE_TOPICS, topic_names=(name,), timeout=milliseconds(5_000))
            code = answer.responses[0].error_code
            if code is ErrorCode.unknown_topic_or_partition:
                self._history.violated(f"{name} was created, and is not there when it is deleted")
            check(code)
        except (AskError, RefusedError):
            self._exists[next(self._names)] = False
            raise
        self._exists[name] = False
        self.deletions += 1

    async def _produce(self, client: SimClient, name: str) -> None:
        self._last_value += 1
        batch = bytes(build_batch([Record(Offset(0), 0, None, b"%d" % self._last_value, ())]))
        offset = await client.produce(TopicPartition(name, 0), batch)
        assert offset is not None
        self._acked[name][Offset(offset)] = self._last_value

    async def check(self, client: SimClient, name: str) -> None:
        """Compare a stream with what was acknowledged of it."""
        exists = self._exists[name]
        answer = await client.ask(
            _METADATA,
            topics=[{"name": name}],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        code = answer.topics[0].error_code
        check(code, ErrorCode.unknown_topic_or_partition)
        if (code is ErrorCode.none) != exists:
            self._history.violated(f"{name} {'is missing' if exists else 'is back'}: metadata says {code.name}")
        if code is not ErrorCode.none or not exists:
            return
        held: dict[Offset, int] = {}
        position, end = Offset(0), await client.end_offset(TopicPartition(name, 0))
        while position < end:
            polled = await client.fetch(TopicPartition(name, 0), position, _POLL_WAIT_MS)
            held |= {offset: int(value) for offset, value in polled.records}
            position = polled.next_offset
        lost = {offset: value for offset, value in self._acked[name].items() if held.get(offset) != value}
        if lost:
            self._history.violated(f"lost writes in {name}: acknowledged {lost}")

    def acked(self, name: str) -> int:
        """How many records of a stream were acknowledged; 0 where there is no such stream."""
        return len(self._acked[name]) if self._exists.get(name) else 0

    async def check_all(self, client: SimClient) -> None:
        """The same for every name in use."""
        for name in self._exists:
            await self.check(client, name)
