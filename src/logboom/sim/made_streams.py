"""Streams that are made, grown and deleted while things go wrong, and what must be true of them at the end.

A request without an answer may have been carried out or not, or may be later; what was answered holds: a stream that
was made is there with its partitions, each of which takes a record with acks=all, and one that was deleted is not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

from logboom.base.ids import Offset
from logboom.client.messages import Api
from logboom.kafka.wire.messages import milliseconds
from logboom.records import Record, build_batch
from logboom.sim.client import SimClient, TopicPartition, check
from logboom.sim.history import History

_METADATA: Final[Api] = (3, 8)
_DELETE_TOPICS: Final[Api] = (20, 3)
_CREATE_PARTITIONS: Final[Api] = (37, 1)
_TIMEOUT_MS: Final = 5_000
_PARTITIONS_MAX: Final = 3
_GROWN_CHANCE: Final = 0.3
_DELETED_CHANCE: Final = 0.6
_PAUSE_MAX_S: Final = 0.05

Attempt = Callable[[Callable[[SimClient], Awaitable[Any]]], Awaitable[bool]]
"""Does some work as a client of the cluster, once; whether that was answered, and not refused."""


class MadeStreams:
    """Life: that of the run."""

    def __init__(self, attempt: Attempt, replicas: int, config: Mapping[str, str]) -> None:
        """`replicas`: of each partition; `config`: of each stream."""
        self._attempt = attempt
        self._replicas = replicas
        self._config = config
        self._made = 0
        self._partitions: dict[str, int] = {}
        """Of each stream that has to be there: as many as it has at least."""
        self._deleted: set[str] = set()

    async def run(self, chance: Random, until_s: float) -> None:
        """Make streams one after the other until that time of the loop, grow some and delete some."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            self._made += 1
            name, partitions = f"flapped-{self._made}", chance.randint(1, _PARTITIONS_MAX)
            if await self._make(name, partitions):
                if chance.random() < _GROWN_CHANCE:
                    await self._grow(name, partitions + 1)
                if chance.random() < _DELETED_CHANCE:
                    await self._delete(name)
            await asyncio.sleep(chance.uniform(0, _PAUSE_MAX_S))

    async def _make(self, name: str, partitions: int) -> bool:
        made = await self._attempt(lambda client: client.create_stream(name, partitions, self._config, self._replicas))
        if made:
            self._partitions[name] = partitions
        return made

    async def _grow(self, name: str, total: int) -> None:
        async def grow(client: SimClient) -> None:
            topic = {"name": name, "count": total, "assignments": None}
            answer = await client.ask(
                _CREATE_PARTITIONS, topics=[topic], timeout=milliseconds(_TIMEOUT_MS), validate_only=False
            )
            check(answer.results[0].error_code)

        if await self._attempt(grow):
            self._partitions[name] = total

    async def _delete(self, name: str) -> None:
        async def delete(client: SimClient) -> None:
            answer = await client.ask(_DELETE_TOPICS, topic_names=(name,), timeout=milliseconds(_TIMEOUT_MS))
            check(answer.responses[0].error_code)

        del self._partitions[name]  # whether it is there is open from here on, until that is answered
        if await self._attempt(delete):
            self._deleted.add(name)

    @property
    def is_checked(self) -> bool:
        """Whether nothing is known of any stream that `check_there` has not looked at."""
        return not self._partitions and not self._deleted

    async def check_there(self, client: SimClient, history: History) -> None:
        """In a cluster that is healed: those that were deleted are gone, and those that were made take records.

        Raises AskError and RefusedError, upon which it is to be called again, within the time that the caller has.
        """
        answer = await client.ask(
            _METADATA,
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        found = {topic.name: len(topic.partitions) for topic in answer.topics}
        for name in sorted(self._deleted & found.keys()):
            history.violated(f"{name} was deleted, and is there")
        self._deleted.clear()
        while self._partitions:
            name, partitions = next(iter(self._partitions.items()))
            if found.get(name, 0) < partitions:
                history.violated(f"{name} has {found.get(name, 0)} of {partitions} partitions")
            else:
                for index in range(partitions):
                    await client.produce(TopicPartition(name, index), _one_record())
            del self._partitions[name]


def _one_record() -> bytes:
    return bytes(build_batch([Record(Offset(0), 0, None, b"0", ())]))
