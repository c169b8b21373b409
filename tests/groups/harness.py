"""A coordinator with virtual time and a log in memory: what the tests of this room play their scenes on."""

from dataclasses import dataclass, field
from typing import TypeVar, cast

from logboom.base.errors import LogboomError
from logboom.groups import (
    Commit,
    CommitReply,
    Coordinator,
    DeleteGroup,
    DeleteGroupReply,
    Event,
    GroupDescription,
    GroupLimits,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    Leaver,
    LeaveReply,
    LogRecord,
    Now,
    OffsetToCommit,
    Persist,
    Persisted,
    Protocol,
    Reply,
    Request,
    RequestBody,
    Sync,
    SyncReply,
    Tick,
    Token,
)

WALL_MS = 1_700_000_000_000
G = "orders"
A = TypeVar("A")


def subscription(*streams: str) -> bytes:
    """Consumer protocol subscription v0 that names these streams."""
    body = b"".join(len(stream).to_bytes(2, "big") + stream.encode() for stream in streams)
    return b"\0\0" + len(streams).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"


RANGE = (Protocol("range", subscription("clicks")),)


@dataclass
class Harness:
    """Plays events; keeps every reply; writes what is to be written, at once unless `slow_disk`."""

    limits: GroupLimits = field(default_factory=GroupLimits)
    slow_disk: bool = False
    disk_error: LogboomError | None = None

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(self.limits)
        self.now_ms = 1_000
        self.log: list[LogRecord] = []
        self.replies: dict[Token, object] = {}
        self.writes: list[Persist] = []
        self.asked = 0
        self.coordinator.start(self.now)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms, WALL_MS + self.now_ms)

    def play(self, event: Event) -> None:
        for effect in self.coordinator.step(event, self.now):
            if isinstance(effect, Reply):
                assert effect.token not in self.replies, "answered twice"
                self.replies[effect.token] = effect.answer
            elif isinstance(effect, Persist):
                self.writes.append(effect)
        if not self.slow_disk:
            self.flush()

    def flush(self, error: LogboomError | None = None) -> None:
        """The fate of all writes under way."""
        while self.writes:
            write = self.writes.pop(0)
            told = error or self.disk_error
            if told is None:
                self.log.extend(write.records)
            self.play(Persisted(write.ticket, told))

    def ask(self, body: RequestBody) -> Token:
        self.asked += 1
        token = Token(self.asked)
        self.play(Request(token, body))
        return token

    def answer(self, token: Token, kind: type[A]) -> A:
        answer = self.replies[token]
        assert isinstance(answer, kind)
        return answer

    def waits(self, token: Token) -> bool:
        return token not in self.replies

    def sleep(self, ms: int) -> None:
        """Let time pass, with a Tick at every deadline on the way."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.coordinator.deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.play(Tick())
        self.now_ms = end_ms

    def restart(self) -> None:
        """kill -9 and start again on the same log."""
        self.coordinator = replayed(self.log, self.limits, self.now)
        self.writes.clear()
        self.coordinator.start(self.now)

    # --- requests -----------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = G,
        instance_id: str | None = None,
        protocols: tuple[Protocol, ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        v4: bool = False,
        v9: bool = False,
    ) -> Token:
        return self.ask(
            Join(
                group_id=group_id,
                member_id=member_id,
                instance_id=instance_id,
                client_id="app",
                client_host="10.0.0.1",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                member_id_required=v4,
                can_skip_assignment=v9,
                unique_id=str(self.asked),
            )
        )

    def joined(self, token: Token) -> JoinReply:
        return self.answer(token, JoinReply)

    def sync(
        self, reply: JoinReply, assignments: dict[str, bytes] | None = None, instance_id: str | None = None
    ) -> Token:
        return self.ask(
            Sync(
                group_id=G,
                generation=reply.generation,
                member_id=reply.member_id,
                instance_id=instance_id,
                assignments=tuple((assignments or {}).items()),
            )
        )

    def synced(self, token: Token) -> SyncReply:
        return self.answer(token, SyncReply)

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> type[LogboomError] | None:
        body = Heartbeat(group_id=G, generation=generation, member_id=member_id, instance_id=instance_id)
        return kind(self.answer(self.ask(body), HeartbeatReply).error)

    def leave(self, *leavers: Leaver, group_id: str = G) -> LeaveReply:
        return self.answer(self.ask(Leave(group_id=group_id, leavers=leavers)), LeaveReply)

    def commit_later(
        self, offset: int, *, stream: str = "clicks", member_id: str = "", generation: int = -1, **more: object
    ) -> Token:
        metadata = cast("str", more.pop("metadata", ""))
        body = Commit(
            group_id=cast("str", more.pop("group_id", G)),
            generation=generation,
            member_id=member_id,
            offsets=(OffsetToCommit(stream, 0, offset, 3, metadata),),
            **more,  # type: ignore[arg-type]
        )
        return self.ask(body)

    def commit(self, offset: int, **more: object) -> type[LogboomError] | None:
        token = self.commit_later(offset, **more)  # type: ignore[arg-type]
        return kind(self.answer(token, CommitReply).results[0])

    def delete_group(self, group_id: str = G) -> type[LogboomError] | None:
        return kind(self.answer(self.ask(DeleteGroup(group_id=group_id)), DeleteGroupReply).error)

    # --- scenes -------------------------------------------------------------------------------------------------

    def form(self, *instances: str | None, **more: object) -> list[JoinReply]:
        """A stable group of one member for each instance id; the first leads. Member n is assigned b"n"."""
        tokens = [self.join(instance_id=instance, **more) for instance in instances]  # type: ignore[arg-type]
        self.sleep(self.limits.initial_rebalance_delay_ms * (2 if len(instances) > 1 else 1))
        replies = [self.joined(token) for token in tokens]
        self.assign(replies)
        return replies

    def assign(self, replies: list[JoinReply]) -> list[SyncReply]:
        """All sync, the leader last; it hands out b"0", b"1", ... in the order given."""
        assignments = {reply.member_id: b"%d" % index for index, reply in enumerate(replies)}
        followers = {reply.member_id: self.sync(reply) for reply in replies if reply.leader != reply.member_id}
        leads = {r.member_id: self.sync(r, assignments) for r in replies if r.leader == r.member_id}
        tokens = followers | leads
        return [self.synced(tokens[reply.member_id]) for reply in replies]

    def group(self, group_id: str = G) -> GroupDescription:
        group = self.coordinator.describe(group_id)
        assert group is not None
        return group

    @property
    def state(self) -> str:
        return self.group().state

    def offset(self, stream: str = "clicks", group_id: str = G) -> int | None:
        value = self.coordinator.committed(group_id).get((stream, 0))
        return None if value is None else value.offset


def kind(error: LogboomError | None) -> type[LogboomError] | None:
    """The class of an error."""
    return None if error is None else type(error)


def replayed(log: list[LogRecord], limits: GroupLimits, now: Now) -> Coordinator:
    """A coordinator that knows what the log says."""
    coordinator = Coordinator(limits)
    for record in log:
        coordinator.replay(record, now)
    return coordinator
