"""Members of one consumer group: they join, share the partitions, commit, stall, leave and vanish.

What must hold, whatever the broker goes through:

- in one generation of the group a partition is assigned to one member at most;
- a commit that was acknowledged is what the next owner begins with, or a newer one: committed offsets never go back, so
  a member of an older generation cannot commit any more;
- only what somebody tried to commit is found.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import Offset
from logboom.client.messages import Api
from logboom.kafka.wire.messages import milliseconds
from logboom.sim.client import AskError, RefusedError, SimClient, TopicPartition, check
from logboom.sim.history import History
from logboom.sim.session import ClientContext
from logboom.sim.workload import poll

GROUP: Final = "group"
SESSION_MS: Final = 2_000
_REBALANCE_MS: Final = 3_000
_JOIN_ANSWER_S: Final = 10.0
_PAUSE_MAX_S: Final = 0.4
_LEAVE_CHANCE: Final = 0.01
_DEATH_CHANCE: Final = 0.01
_STALL_CHANCE: Final = 0.1
_COMMIT_CHANCE: Final = 0.7

_JOIN: Final[Api] = (11, 5)
_SYNC: Final[Api] = (14, 3)
_HEARTBEAT: Final[Api] = (12, 3)
_LEAVE: Final[Api] = (13, 3)
_FENCED: Final = (ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress)
"""Answers that send a member back to JoinGroup."""


@dataclass
class GroupHistory:
    """What the members of one group were told. Life: that of the run."""

    history: History
    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    """Who owns a partition in a generation."""
    acked: dict[TopicPartition, Offset] = field(default_factory=dict)
    """The highest commit that was acknowledged."""
    sent: dict[TopicPartition, Offset] = field(default_factory=dict)
    """The highest that was asked for."""

    @property
    def generations(self) -> int:
        """How many generations gave somebody a partition."""
        return len({generation for generation, _ in self.owners})

    def assigned(self, generation: int, member_id: str, partitions: Sequence[TopicPartition]) -> None:
        """A member was told what it owns."""
        for where in partitions:
            owner = self.owners.setdefault((generation, where), member_id)
            if owner != member_id:
                self.history.violated(f"{where} belongs to {owner} and {member_id} in generation {generation}")

    def committed(self, where: TopicPartition, offset: Offset, acked_before: Offset) -> None:
        """A commit was acknowledged, of a request before which `acked_before` was."""
        if offset < acked_before:
            # Its owner began at or above that, since it was assigned the partition after that was stored.
            self.history.violated(f"{GROUP} committed {acked_before} of {where} and then took {offset} from another")
        self.acked[where] = max(offset, self.acked.get(where, Offset(-1)))
        self.history.commits += 1

    def found(self, where: TopicPartition, offset: Offset, acked_before: Offset) -> None:
        """A committed offset was read, by a request before which `acked_before` was acknowledged."""
        if not acked_before <= offset <= self.sent.get(where, Offset(-1)):
            sent = self.sent.get(where)
            self.history.violated(f"{GROUP} committed {acked_before} of {where}, tried {sent} and finds {offset}")


class Member:
    """One member after the other, each with an id of its own."""

    def __init__(self, context: ClientContext, group: GroupHistory) -> None:
        self._session = context.session()
        self._stretch = context.stretch
        self._partitions = context.partitions
        self._group = group
        self._phase = context.phase
        self._chance = context.chance
        self._member_id = ""
        self._generation = -1
        self._session_ms = int(SESSION_MS * context.stretch)

    async def run(self) -> None:
        """Work until the phase ends."""
        while self._phase.consuming:
            try:
                client = await self._session.client()
                owned = await self._join(client)
                await self._work(client, owned)
            except AskError:
                await self._session.failed()
            except RefusedError as error:
                if error.code in _FENCED:
                    if error.code is not ErrorCode.rebalance_in_progress:
                        self._member_id = ""
                else:
                    await self._session.refused(error)
        self._session.close()

    # --- membership -----------------------------------------------------------------------------------------------

    async def _join(self, client: SimClient) -> Sequence[TopicPartition]:
        """The partitions that this member owns in the next generation."""
        joined = await self._ask_join(client)
        if joined.error_code is ErrorCode.member_id_required:
            self._member_id = joined.member_id
            joined = await self._ask_join(client)
        check(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        synced = await client.ask(
            _SYNC,
            answer_s=_JOIN_ANSWER_S * self._stretch,
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            assignments=self._shares([member.member_id for member in joined.members]),
        )
        check(synced.error_code)
        owned = [self._partitions[number] for number in json.loads(synced.assignment or b"[]")]
        self._group.assigned(self._generation, self._member_id, owned)
        return owned

    async def _ask_join(self, client: SimClient) -> Any:
        return await client.ask(
            _JOIN,
            answer_s=_JOIN_ANSWER_S * self._stretch,
            group_id=GROUP,
            session_timeout=milliseconds(self._session_ms),
            rebalance_timeout=milliseconds(int(_REBALANCE_MS * self._stretch)),
            member_id=self._member_id,
            protocol_type="sim",
            protocols=[{"name": "shuffle", "metadata": b""}],
        )

    def _shares(self, members: Sequence[str]) -> list[dict[str, Any]]:
        """What the leader decides: each partition goes to one of the members. The others are given no members."""
        if not members:
            return []
        shares: dict[str, list[int]] = {member: [] for member in members}
        for number in range(len(self._partitions)):
            shares[self._chance.choice(members)].append(number)
        return [{"member_id": member, "assignment": json.dumps(share).encode()} for member, share in shares.items()]

    async def _leave(self, client: SimClient) -> None:
        answer = await client.ask(_LEAVE, group_id=GROUP, members=[{"member_id": self._member_id}])
        self._member_id = ""
        check(answer.error_code, ErrorCode.unknown_member_id)

    # --- work -----------------------------------------------------------------------------------------------------

    async def _work(self, client: SimClient, owned: Sequence[TopicPartition]) -> None:
        """Read and commit until the member leaves, or is told to join again."""
        positions = {where: await self._begin_at(client, where) for where in owned}
        was_away = False
        while self._phase.consuming:
            if not was_away or not owned:  # else it commits before it hears that the group went on without it
                await self._heartbeat(client)
            for where in owned:
                # Of what the last round read, as a consumer commits that has worked on it.
                if was_away or self._chance.random() < _COMMIT_CHANCE:
                    await self._commit(client, where, positions[where])
                positions[where] = await poll(client, where, positions[where], self._group.history)
            was_away = False
            await asyncio.sleep(self._chance.uniform(0, _PAUSE_MAX_S * self._stretch))
            drawn = self._chance.random()
            if drawn < _LEAVE_CHANCE:
                await self._leave(client)
                return
            if drawn < _LEAVE_CHANCE + _DEATH_CHANCE:  # its session ends without it
                self._member_id = ""
                await self._session.failed()
                return
            if drawn < _LEAVE_CHANCE + _DEATH_CHANCE + _STALL_CHANCE:  # for longer than its session
                await asyncio.sleep(2 * self._session_ms / 1_000)
                was_away = True

    async def _begin_at(self, client: SimClient, where: TopicPartition) -> Offset:
        acked_before = self._group.acked.get(where, Offset(-1))
        found = await client.committed(GROUP, where)
        self._group.found(where, found, acked_before)
        return max(found, Offset(0))

    async def _heartbeat(self, client: SimClient) -> None:
        answer = await client.ask(_HEARTBEAT, group_id=GROUP, generation_id=self._generation, member_id=self._member_id)
        check(answer.error_code)

    async def _commit(self, client: SimClient, where: TopicPartition, offset: Offset) -> None:
        group = self._group
        acked_before = group.acked.get(where, Offset(-1))
        group.sent[where] = max(offset, group.sent.get(where, Offset(-1)))
        await client.commit(GROUP, where, offset, member_id=self._member_id, generation=self._generation)
        group.committed(where, offset, acked_before)
