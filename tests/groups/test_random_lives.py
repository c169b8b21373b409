"""Many members that join, sync, heartbeat, fall silent, come back and leave, over a disk that is slow and fails.

The checker knows nothing of the coordinator's insides: it holds what members were told against what must be true.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.groups.harness import G, Harness, kind, replayed, subscription

from logboom.base.errors import DiskFullError
from logboom.groups import GroupLimits, JoinReply, Leaver, LeaveReply, Protocol, Sync, SyncReply, Token
from logboom.groups.errors import FencedInstanceIdError, MemberIdRequiredError, RebalanceInProgressError
from logboom.groups.events import Commit, CommitReply, Heartbeat, HeartbeatReply, Join, Leave, OffsetToCommit

LIMITS = GroupLimits(group_members_max=6)
SESSION_MS = 10_000
REBALANCE_MS = 15_000


@dataclass
class Client:
    """One consumer process; `token` is its request that waits."""

    instance_id: str | None
    owned: bytes = b""
    member_id: str = ""
    reply: JoinReply | None = None
    token: Token | None = None
    synced: bool = False
    dead: bool = False

    def protocols(self) -> tuple[Protocol, ...]:
        return (Protocol("cooperative-sticky", subscription("clicks") + self.owned), Protocol("range", b"r"))


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(LIMITS)
        self.clients: list[Client] = []
        self.assigned: dict[int, dict[str, bytes]] = {}
        """What the leader of each generation handed out; the first hand-out counts."""
        self.committed: dict[int, int] = {}
        self.commits: dict[Token, int] = {}

    # --- what clients do ----------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 12)
    @rule(instance=st.none() | st.sampled_from(["a", "b"]))
    def start(self, instance: str | None) -> None:
        self.clients.append(Client(instance))

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), v9=st.booleans(), changed=st.booleans())
    def join(self, data: st.DataObject, v9: bool, changed: bool) -> None:
        client = data.draw(st.sampled_from(self.idle()))
        if changed:
            client.owned += b"+"
        self.send_join(client, v9=v9)

    def send_join(self, client: Client, *, v9: bool = False) -> None:
        client.reply, client.synced = None, False
        client.token = self.harness.ask(
            Join(
                group_id=G,
                member_id=client.member_id,
                instance_id=client.instance_id,
                client_id="c",
                client_host="h",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=client.protocols(),
                member_id_required=client.instance_id is None,
                can_skip_assignment=v9,
                unique_id=str(self.harness.asked),
            )
        )
        self.hear()

    @precondition(lambda self: self.to_sync())
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.send_sync(data.draw(st.sampled_from(self.to_sync())))

    def send_sync(self, client: Client) -> None:
        reply = client.reply
        assert reply is not None
        assignments: dict[str, bytes] = {}
        if reply.leader == reply.member_id and not reply.skip_assignment:
            assignments = {m.member_id: f"{reply.generation}:{m.member_id}".encode() for m in reply.members}
            self.assigned.setdefault(reply.generation, assignments)
        client.token = self.harness.ask(
            Sync(
                group_id=G,
                generation=reply.generation,
                member_id=client.member_id,
                instance_id=client.instance_id,
                assignments=tuple(assignments.items()),
            )
        )
        self.hear()

    @precondition(lambda self: self.working())
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        self.send_heartbeat(data.draw(st.sampled_from(self.working())))

    def send_heartbeat(self, client: Client) -> None:
        assert client.reply is not None
        body = Heartbeat(
            group_id=G,
            generation=client.reply.generation,
            member_id=client.member_id,
            instance_id=client.instance_id,
        )
        error = kind(self.harness.answer(self.harness.ask(body), HeartbeatReply).error)
        if error is not None:
            self.told(client, error)

    @precondition(lambda self: self.working())
    @rule(data=st.data(), offset=st.integers(0, 1_000))
    def commit(self, data: st.DataObject, offset: int) -> None:
        client = data.draw(st.sampled_from(self.working()))
        assert client.reply is not None
        body = Commit(
            group_id=G,
            generation=client.reply.generation,
            member_id=client.member_id,
            instance_id=client.instance_id,
            offsets=(OffsetToCommit("clicks", 0, offset, -1, ""),),
        )
        self.commits[self.harness.ask(body)] = offset
        self.hear()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def fall_silent(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.clients)).dead = True

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def come_back_as_a_new_process(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients[self.clients.index(client)] = Client(client.instance_id)

    @precondition(lambda self: any(client.member_id for client in self.clients))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients if client.member_id]))
        self.harness.ask(Leave(group_id=G, leavers=(Leaver(client.member_id, client.instance_id),)))
        self.clients.remove(client)
        self.hear()

    # --- what the world does ------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([0, 100, 1_000, 3_000, 5_000, 11_000]))
    def time_passes(self, ms: int) -> None:
        self.harness.sleep(ms)
        self.hear()

    @rule(slow=st.booleans(), broken=st.booleans())
    def disk(self, slow: bool, broken: bool) -> None:
        self.harness.slow_disk = slow
        self.harness.disk_error = DiskFullError("full") if broken else None
        if not slow:
            self.harness.flush()
        self.hear()

    @rule()
    def disk_catches_up(self) -> None:
        self.harness.flush()
        self.hear()

    @rule()
    def kill_and_restart(self) -> None:
        self.harness.restart()
        self.commits.clear()
        for client in self.clients:
            if client.token is not None:  # its connection broke
                client.token, client.reply = None, None

    # --- what clients hear --------------------------------------------------------------------------------------

    def hear(self) -> None:
        for client in self.clients:
            if client.token is not None and not self.harness.waits(client.token):
                answer = self.harness.replies[client.token]
                client.token = None
                if isinstance(answer, JoinReply):
                    self.heard_join(client, answer)
                elif isinstance(answer, SyncReply):
                    self.heard_sync(client, answer)
        for token, offset in list(self.commits.items()):
            if not self.harness.waits(token):
                del self.commits[token]
                if self.harness.answer(token, CommitReply).results[0] is None:
                    self.committed[token] = offset

    def heard_join(self, client: Client, answer: JoinReply) -> None:
        if answer.error is None:
            assert answer.member_id
            assert not client.member_id or client.member_id == answer.member_id
            client.member_id, client.reply = answer.member_id, answer
        elif kind(answer.error) is MemberIdRequiredError:
            client.member_id = answer.member_id
        else:
            self.told(client, type(answer.error))

    def heard_sync(self, client: Client, answer: SyncReply) -> None:
        assert client.reply is not None
        if answer.error is not None:
            self.told(client, type(answer.error))
            return
        client.synced = True
        expected = self.assigned.get(client.reply.generation, {})
        if client.member_id in expected:
            assert answer.assignment == expected[client.member_id], "another assignment than the leader's"

    def told(self, client: Client, error: type[Exception]) -> None:
        client.synced, client.reply = False, None
        if error is FencedInstanceIdError:
            client.dead = True
        elif error is not RebalanceInProgressError:
            client.member_id = ""

    # --- who can do what ----------------------------------------------------------------------------------------

    def idle(self) -> list[Client]:
        return [client for client in self.clients if client.token is None and not client.dead]

    def to_sync(self) -> list[Client]:
        return [client for client in self.idle() if client.reply is not None and not client.synced]

    def working(self) -> list[Client]:
        return [client for client in self.idle() if client.synced]

    # --- what must be true --------------------------------------------------------------------------------------

    @invariant()
    def the_books_add_up(self) -> None:
        group = self.harness.coordinator._context.groups.get(G)
        if group is None:
            return
        waiting = [member for member in group.members.values() if member.join_token is not None]
        assert group.awaiting_join_count == len(waiting)
        assert (group.leader in group.members) == bool(group.members)
        assert group.pending_syncs <= group.members.keys()
        assert not (group.pending_joins & group.members.keys())
        assert len(group.members) <= LIMITS.group_members_max
        for instance_id, member_id in group.static_ids.items():
            assert group.members[member_id].instance_id == instance_id
        assert sum(member.is_static for member in group.members.values()) == len(group.static_ids)
        state = group.state.value
        assert bool(group.members) or state in ("Empty", "PreparingRebalance", "Dead")
        parked = all(member.sync_token is None for member in group.members.values())
        assert parked or state == "CompletingRebalance"

    @invariant()
    def everyone_who_waits_is_known_to_the_group(self) -> None:
        group = self.harness.coordinator._context.groups.get(G)
        members = [] if group is None else group.members.values()
        known = {token for member in members for token in (member.join_token, member.sync_token)}
        known |= {
            token
            for waiting in self.harness.coordinator._membership._pending_static_writes.values()
            for token, _ in waiting
        }
        for client in self.clients:
            assert client.token is None or client.token in known, "an answer was lost"

    @invariant()
    def no_two_work_under_one_instance_id(self) -> None:
        if self.harness.coordinator.describe(G) is None or self.harness.state != "Stable":
            return
        group = self.harness.group()
        ids = {member.member_id for member in group.members}
        assert len({m.instance_id for m in group.members if m.instance_id}) == sum(
            m.instance_id is not None for m in group.members
        )
        generation = self.harness.coordinator._context.groups[G].generation
        for client in self.working():
            assert client.reply is not None
            assert client.reply.generation <= generation or client.member_id not in ids

    @invariant()
    def the_last_commit_stands(self) -> None:
        if not self.committed or self.commits or self.harness.coordinator.describe(G) is None:
            return
        assert self.harness.offset() == self.committed[max(self.committed)]

    @invariant()
    def the_log_says_the_same(self) -> None:
        harness = self.harness
        if harness.writes or harness.coordinator.describe(G) is None:
            return
        other = replayed(harness.log, LIMITS, harness.now)
        assert other.committed(G) == harness.coordinator.committed(G)
        if harness.state == "Stable":
            assert other.describe(G) == harness.group()
        compacted = {record.key: record for record in harness.log}
        shorter = replayed(list(compacted.values()), LIMITS, harness.now)
        assert shorter.describe(G) == other.describe(G)
        assert shorter.committed(G) == other.committed(G)

    def teardown(self) -> None:
        """Left alone with a good disk, the living settle; without them the group ends empty."""
        harness = self.harness
        harness.slow_disk, harness.disk_error = False, None
        harness.flush()
        self.hear()
        for _ in range(60):
            for client in self.idle():
                if client.synced:
                    self.send_heartbeat(client)
                elif client.reply is not None:
                    self.send_sync(client)
                else:
                    self.send_join(client)
            harness.sleep(2_000)
            self.hear()
            self.the_books_add_up()
        members = len(self.idle())
        state = "none" if harness.coordinator.describe(G) is None else harness.state
        if members:
            assert state == "Stable", state
            assert len(self.working()) == min(members, LIMITS.group_members_max)
        else:
            assert state in ("Empty", "none"), state
        assert not [client for client in self.clients if client.token is not None and not client.dead]
        for answer in harness.replies.values():
            assert not isinstance(answer, LeaveReply) or len(answer.results) == 1


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
