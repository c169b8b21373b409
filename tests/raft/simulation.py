"""A group of `Node`s under one seed: a network that loses, repeats, delays and overtakes, members that crash with
writes under way, and changes of the members meanwhile. After every step it is checked what Raft promises (thesis,
figure 3.2):

- election safety: at most one leader in a term;
- log matching: entries of one index and term are the same everywhere, and so is all before them;
- leader completeness: a new leader has everything that is committed;
- state machine safety: what is applied at an index is the same everywhere.

and what an implementation adds to that: nothing is said that is not durable, what a leader commits is durable on the
majorities of its configuration, and a read is answered no earlier than what was committed when it was asked for.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from logboom.raft import (
    Applied,
    Apply,
    ConfChange,
    ConfChangeSingle,
    ConfChangeTransition,
    ConfChangeType,
    ConfChangeV2,
    ConfigurationChanged,
    DiscardLog,
    Effect,
    Entry,
    Event,
    Ignored,
    Index,
    Message,
    MessageType,
    Node,
    NodeId,
    Persist,
    Persisted,
    ProposalAppended,
    ProposalDropped,
    Propose,
    ProposeConfChange,
    RaftConfig,
    ReadReady,
    Received,
    RequestRead,
    Restore,
    Role,
    RoleChanged,
    Send,
    Snapshot,
    SnapshotSent,
    SnapshotTaken,
    SnapshotWanted,
    Stored,
    Term,
    TimePassed,
    TransferLeadership,
    bootstrap,
    decode_message,
    encode_message,
)

TICK_MS = 10
ELECTION_TICKS = 10
ZERO = Index(0)


class ViolationError(AssertionError):
    """Something that Raft promises does not hold."""


@dataclass
class Files:
    """What one member's disk holds for sure. It knows nothing of the core's own copy of the log."""

    stored: Stored

    def write(self, persist: Persist) -> None:
        hard_state, snapshot, entries = self.stored.hard_state, self.stored.snapshot, self.stored.entries
        if persist.snapshot is not None:
            snapshot, entries = persist.snapshot, ()
        if persist.entries:
            entries = tuple(entry for entry in entries if entry.index < persist.entries[0].index) + persist.entries
        self.stored = Stored(persist.hard_state or hard_state, snapshot, entries)

    def take_snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.index > self.stored.snapshot.index:
            self.stored = Stored(self.stored.hard_state, snapshot, self.stored.entries)

    def discard(self, index: Index) -> None:
        kept = tuple(entry for entry in self.stored.entries if entry.index >= index)
        self.stored = Stored(self.stored.hard_state, self.stored.snapshot, kept)

    def has(self, index: Index, term: Term) -> bool:
        if index <= self.stored.snapshot.index:
            return True
        return any(entry.index == index and entry.term == term for entry in self.stored.entries)

    @property
    def last_index(self) -> Index:
        last = self.stored.entries[-1].index if self.stored.entries else Index(0)
        return max(last, self.stored.snapshot.index)


@dataclass
class Member:
    node_id: NodeId
    files: Files
    node: Node | None = None
    writes: list[Persist] = field(default_factory=list)
    applications: list[Apply] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    """The state machine: what was applied, one after the other."""

    applied: Index = ZERO
    committed: Index = ZERO

    def restore(self, snapshot: Snapshot) -> None:
        """The state machine is what the snapshot says."""
        self.data = msgspec.msgpack.decode(snapshot.data, type=list[bytes]) if snapshot.data else []
        self.applied = snapshot.index


@dataclass
class Options:
    """How often things happen, as weights."""

    members: int = 3
    loss: float = 0.05
    repeats: float = 0.05
    crashes: float = 0.5
    cuts: float = 0.3
    heals: float = 0.9
    conf_changes: float = 1.0
    check_quorum: bool = True


class Cluster:
    """The members, the messages between them, and what is known of all that ever happened."""

    def __init__(self, seed: int, options: Options) -> None:
        self.random = Random(seed)
        self.options = options
        self.now_ms = 0
        self.members: dict[NodeId, Member] = {}
        self.messages: list[bytes] = []
        self.cut: set[NodeId] = set()
        self.happened: Counter[str] = Counter()
        self.leader_of: dict[Term, NodeId] = {}
        self.written: dict[tuple[Index, Term], tuple[Entry, Term | None]] = {}
        self.applied: dict[Index, Entry] = {}
        self.committed: dict[Index, Term] = {}
        self.committed_index = Index(1)
        self.reads: dict[int, Index] = {}
        self.proposals = 0
        first = tuple(NodeId(number + 1) for number in range(options.members))
        for node_id in first:
            self._start(Member(node_id, self.new_files(bootstrap(first))))

    # --- one step --------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Something happens, by chance."""
        options = self.options
        actions = {
            self._deliver: 120.0,
            self._pass_time: 14.0,
            self._finish_write: 60.0,
            self._finish_apply: 30.0,
            self._propose: 12.0,
            self._read: 3.0,
            self._snapshot: 2.0,
            self._transfer: 0.2,
            self._crash: options.crashes,
            self._restart: 4 * options.crashes,
            self._cut: options.cuts,
            self._heal: options.heals,
            self._change_members: options.conf_changes,
        }
        action = self.random.choices(list(actions), list(actions.values()))[0]
        action()

    def settle(self, virtual_ms: int) -> None:
        """Everything is mended, and time passes."""
        self.cut.clear()
        for member in self.members.values():
            if member.node is None:
                self._start(member)
        end = self.now_ms + virtual_ms
        while self.now_ms < end:
            self.now_ms += TICK_MS
            for member in self.members.values():
                self.feed(member, TimePassed())
            for _ in range(6):
                pending, self.messages = self.messages, []
                for data in pending:
                    self._hand_over(data)
                for member in list(self.members.values()):
                    self._finish_all(member)

    def _finish_all(self, member: Member) -> None:
        while member.writes or member.applications:
            if member.writes:
                self._finish_write_of(member)
            if member.applications:
                self._finish_apply_of(member)

    # --- what may happen -------------------------------------------------------------------------------------------

    def _alive(self) -> list[Member]:
        return [member for member in self.members.values() if member.node is not None]

    def leader(self) -> Member | None:
        leaders = [member for member in self._alive() if self.node_of(member).status.soft_state.role is Role.LEADER]
        return max(leaders, key=lambda member: self.node_of(member).status.hard_state.term, default=None)

    def _deliver(self) -> None:
        if not self.messages:
            return
        # Mostly in order; sometimes one overtakes all before it.
        position = self.random.randrange(len(self.messages)) if self.random.random() < 0.2 else 0
        data = self.messages.pop(position)
        if self.random.random() < self.options.repeats:
            self.messages.append(data)
        lost = self.random.random() < self.options.loss
        self.happened["lost"] += lost
        self._hand_over(data, lost=lost)

    def _hand_over(self, data: bytes, *, lost: bool = False) -> None:
        message = decode_message(data)
        receiver, sender = self.members.get(message.to), self.members[message.sender]
        lost = lost or receiver is None or receiver.node is None or bool({message.sender, message.to} & self.cut)
        if message.type is MessageType.SNAP and sender.node is not None:
            self.feed(sender, SnapshotSent(message.to, failed=lost))
        if receiver is not None and not lost:
            self.feed(receiver, Received(message))

    def _pass_time(self) -> None:
        self.now_ms += self.random.choice((1, 5, TICK_MS, TICK_MS))
        for member in self._alive():
            if self.random.random() < 0.9:  # some stand still for a while
                self.feed(member, TimePassed())

    def _finish_write(self) -> None:
        writing = [member for member in self._alive() if member.writes]
        if writing:
            self._finish_write_of(self.random.choice(writing))

    def _finish_write_of(self, member: Member) -> None:
        persist = member.writes.pop(0)
        member.files.write(persist)
        self.feed(member, Persisted(persist.number))

    def _finish_apply(self) -> None:
        applying = [member for member in self._alive() if member.applications]
        if applying:
            self._finish_apply_of(self.random.choice(applying))

    def _finish_apply_of(self, member: Member) -> None:
        apply = member.applications.pop(0)
        for entry in apply.entries:
            if entry.index > member.applied:
                member.data.append(entry.data)
                member.applied = entry.index
        self.feed(member, Applied(apply.entries[-1].index))

    def _propose(self) -> None:
        leader = self.leader()
        if leader is not None and self.random.random() < 0.8:
            self.propose_at(leader)
        elif self._alive():
            self.propose_at(self.random.choice(self._alive()))

    def propose_at(self, member: Member) -> None:
        self.proposals += 1
        self.feed(member, Propose(self.proposals, b"p%d" % self.proposals))

    def _read(self) -> None:
        for member in self.random.sample(self._alive(), min(1, len(self._alive()))):
            token = len(self.reads) + 1
            self.reads[token] = self.committed_index
            self.feed(member, RequestRead(token))

    def _snapshot(self) -> None:
        for member in self.random.sample(self._alive(), min(1, len(self._alive()))):
            self._take_snapshot(member)

    def _take_snapshot(self, member: Member) -> None:
        point = self.node_of(member).snapshot_point
        if point is not None and point.index == member.applied:
            snapshot = msgspec.structs.replace(point, data=msgspec.msgpack.encode(member.data))
            member.files.take_snapshot(snapshot)
            self.happened["snapshots"] += 1
            self.feed(member, SnapshotTaken(snapshot))

    def _transfer(self) -> None:
        leader = self.leader()
        if leader is not None:
            self.happened["transfers"] += 1
            self.feed(leader, TransferLeadership(self.random.choice(list(self.members))))

    def _crash(self) -> None:
        """The process dies; of the writes under way, the first ones may have got to the disk."""
        for member in self.random.sample(self._alive(), min(1, len(self._alive()))):
            self.crash(member)

    def crash(self, member: Member) -> None:
        for persist in member.writes[: self.random.randrange(len(member.writes) + 1)]:
            member.files.write(persist)
        self.happened["crashes"] += 1
        member.node = None
        member.writes, member.applications = [], []

    def _restart(self) -> None:
        dead = [member for member in self.members.values() if member.node is None]
        if dead:
            self._start(self.random.choice(dead))

    def _cut(self) -> None:
        self.cut = set(self.random.sample(list(self.members), self.random.randint(1, max(1, len(self.members) // 2))))
        self.happened["cuts"] += 1

    def _heal(self) -> None:
        self.cut.clear()

    def _change_members(self) -> None:
        leader = self.leader()
        if leader is None:
            return
        config = self.node_of(leader).status.config
        if config.voters.is_joint and self.random.random() < 0.7:
            change: ConfChange | ConfChangeV2 = ConfChangeV2()
        else:
            change = self._random_change(sorted(config.voters.ids | config.learners))
        self.feed(leader, ProposeConfChange("change", change))

    def _random_change(self, present: list[NodeId]) -> ConfChange | ConfChangeV2:
        changes = tuple(self._random_single(present) for _ in range(self.random.choice((1, 1, 2, 3))))
        if len(changes) == 1 and self.random.random() < 0.5:
            return ConfChange(changes[0])
        return ConfChangeV2(changes, self.random.choice(list(ConfChangeTransition)))

    def _random_single(self, present: list[NodeId]) -> ConfChangeSingle:
        kinds = [ConfChangeType.ADD_NODE, ConfChangeType.ADD_LEARNER_NODE]
        if len(present) > 2:
            kinds.append(ConfChangeType.REMOVE_NODE)
        kind = self.random.choice(kinds)
        node_id = self.random.choice(present)
        if kind is not ConfChangeType.REMOVE_NODE and len(present) < 6 and self.random.random() < 0.5:
            node_id = NodeId(len(self.members) + 1)  # ids are never used again
            self._start(Member(node_id, self.new_files(Stored())))
        return ConfChangeSingle(kind, node_id)

    def new_files(self, stored: Stored) -> Files:
        """The files of a member that is made now."""
        return Files(stored)

    # --- hosts ---------------------------------------------------------------------------------------------------

    @staticmethod
    def node_of(member: Member) -> Node:
        assert member.node is not None
        return member.node

    def _start(self, member: Member) -> None:
        config = RaftConfig(
            node_id=member.node_id,
            draw=self.random.randrange,
            election_ticks=ELECTION_TICKS,
            max_message_bytes=self.random.choice((30, 200)),
            max_applying_bytes=150,
            max_uncommitted_bytes=2000,
            max_inflight_messages=4,
            check_quorum=self.options.check_quorum,
            pre_vote=True,
        )
        stored = member.files.stored
        member.restore(stored.snapshot)
        member.committed = ZERO
        member.node = Node(config, stored, now_ms=self.now_ms, tick_ms=TICK_MS, catch_up_entries=3)
        self.members[member.node_id] = member
        self.feed(member, TimePassed())

    def feed(self, member: Member, event: Event) -> None:
        """Give a member an event and begin what it answers."""
        for effect in self.node_of(member).step(event, self.now_ms):
            self._begin(member, effect)
        self._check_commit(member)

    def _begin(self, member: Member, effect: Effect) -> None:
        self.happened[type(effect).__name__] += 1
        match effect:
            case Persist():
                self._check_written(member, effect)
                member.writes.append(effect)
            case Send(message):
                self._check_said(member, message)
                self.messages.append(encode_message(message))
            case Apply(entries):
                self._check_applied(entries)
                member.applications.append(effect)
            case Restore(snapshot):
                member.restore(snapshot)
            case SnapshotWanted():
                self._take_snapshot(member)
            case DiscardLog(index):
                member.files.discard(index)
            case ReadReady(token, index):
                if index < self.reads[token]:
                    raise ViolationError(f"a read at {index} misses what was committed before it: {self.reads[token]}")
            case RoleChanged(Role.LEADER, _, term):
                self._check_leader(member, term)
            case RoleChanged() | ConfigurationChanged() | ProposalAppended() | ProposalDropped() | Ignored():
                pass

    # --- what must hold ------------------------------------------------------------------------------------------

    def _check_leader(self, member: Member, term: Term) -> None:
        if self.leader_of.setdefault(term, member.node_id) != member.node_id:
            raise ViolationError(f"{self.leader_of[term]} and {member.node_id} both lead in term {term}")
        log = self.node_of(member)._raw.raft.log
        for index in range(log.first_index(), self.committed_index + 1):
            if index in self.committed and log.known_term(Index(index)) != self.committed[Index(index)]:
                raise ViolationError(f"{member.node_id} leads in term {term} without the committed entry {index}")

    def _check_written(self, member: Member, persist: Persist) -> None:
        log = self.node_of(member)._raw.raft.log
        befores = [log.known_term(Index(persist.entries[0].index - 1)) if persist.entries else None]
        befores += [entry.term for entry in persist.entries]
        for before, entry in zip(befores, persist.entries, strict=False):
            known = (entry, before)
            if before is not None and self.written.setdefault((entry.index, entry.term), known) != known:
                raise ViolationError(f"entry {entry.index} of term {entry.term} is not the same everywhere")

    def _check_said(self, member: Member, message: Message) -> None:
        """What is promised is durable when it is said, whatever the core believes."""
        files = member.files
        state = files.stored.hard_state
        if message.reject:
            return
        voted = state.term > message.term or (state.term, state.vote) == (message.term, message.to)
        if message.type is MessageType.VOTE_RESP and not voted:
            raise ViolationError(f"{member.node_id} votes in term {message.term} before that is durable")
        if message.type is MessageType.APP_RESP and message.index > files.last_index:
            raise ViolationError(f"{member.node_id} acknowledges {message.index} before it is durable")

    def _check_applied(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if self.applied.setdefault(entry.index, entry) != entry:
                raise ViolationError(f"at {entry.index}, {self.applied[entry.index]} and {entry} were applied")

    def _check_commit(self, member: Member) -> None:
        status = self.node_of(member).status
        commit = status.hard_state.commit
        if commit < member.committed:
            raise ViolationError(f"{member.node_id} committed {member.committed}, and now {commit}")
        log = self.node_of(member)._raw.raft.log
        for index in range(max(member.committed + 1, log.first_index()), commit + 1):
            self._check_committed_entry(member, Index(index), log.term(Index(index)))
        member.committed = commit
        self.committed_index = max(self.committed_index, commit)

    def _check_committed_entry(self, member: Member, index: Index, term: Term) -> None:
        if self.committed.setdefault(index, term) != term:
            raise ViolationError(f"{index} was committed with term {self.committed[index]}, and now with term {term}")
        status = self.node_of(member).status
        if status.soft_state.role is not Role.LEADER or index <= self.committed_index:
            return
        durable = {each.node_id for each in self.members.values() if each.files.has(index, term)}
        voters = status.config.voters
        for half in filter(None, (voters.incoming, voters.outgoing)):
            if 2 * len(half & durable) <= len(half):
                raise ViolationError(f"entry {index} is committed, durable on {sorted(durable)} of {sorted(half)}")


def lives(seeds: range, steps: int, options: Options) -> Iterator[Cluster]:
    """Clusters that have lived through so many steps; an error names the seed."""
    for seed in seeds:
        cluster = Cluster(seed, options)
        try:
            cluster.run(steps)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        yield cluster
