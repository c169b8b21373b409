"""A few nodes whose writes and applications are done at once; the test decides which messages arrive."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from logboom.raft import Entry, EntryType, HardState, Index, Message, NodeId, Role, Snapshot, decode_conf_change
from logboom.raft.config import RaftConfig
from logboom.raft.messages import ConfState, Term
from logboom.raft.raw_node import RawNode
from logboom.raft.read_only import ReadState
from logboom.raft.storage import MemoryStorage

CONFIG = RaftConfig(node_id=NodeId(1), draw=lambda bound: 0, election_ticks=10)
Drop = Callable[[Message], bool]


class Group:
    """Voters 1 to n, learners behind them, each with an empty log that begins at 2."""

    def __init__(self, voters: int, *, learners: int = 0, config: RaftConfig = CONFIG) -> None:
        ids = [NodeId(number + 1) for number in range(voters + learners)]
        start = Snapshot(Index(1), Term(1), ConfState(tuple(ids[:voters]), tuple(ids[voters:])))
        self.storages: dict[NodeId, MemoryStorage] = {}
        self.nodes: dict[NodeId, RawNode] = {}
        self.applied: dict[NodeId, list[Entry]] = {node_id: [] for node_id in ids}
        self.reads: list[ReadState] = []
        self.messages: list[Message] = []
        for node_id in ids:
            storage = self.storages[node_id] = MemoryStorage()
            storage.apply_snapshot(start)
            self.nodes[node_id] = RawNode(replace(config, node_id=node_id), storage, applied=start.index)

    def __getitem__(self, node_id: int) -> RawNode:
        return self.nodes[NodeId(node_id)]

    def handle(self, node_id: NodeId) -> None:
        """Do everything a node asks for."""
        raw, storage = self.nodes[node_id], self.storages[node_id]
        while raw.has_ready():
            ready = raw.ready()
            storage.hard_state = ready.hard_state or storage.hard_state
            if ready.snapshot is not None:
                storage.apply_snapshot(ready.snapshot)
            storage.append(ready.entries)
            self.reads.extend(ready.read_states)
            self.messages.extend(ready.messages)
            for entry in ready.committed_entries:
                self.applied[node_id].append(entry)
                if entry.type is not EntryType.NORMAL:
                    raw.apply_conf_change(decode_conf_change(entry))
            raw.advance()

    def run(self, *, drop: Drop = lambda message: False, only: Iterable[int] | None = None) -> None:
        """Deliver until nothing is left; `drop` loses messages, `only` keeps the rest to some nodes."""
        nodes = {NodeId(each) for each in only} if only is not None else set(self.nodes)
        for node_id in sorted(nodes):
            self.handle(node_id)
        while self.messages:
            message = self.messages.pop(0)
            if message.to in nodes and message.sender in nodes and not drop(message):
                self.nodes[message.to].step(message)
                self.handle(message.to)

    def elect(self, node_id: int, *, only: Iterable[int] | None = None) -> None:
        self[node_id].campaign()
        self.run(only=only)
        assert self.role(node_id) is Role.LEADER

    def role(self, node_id: int) -> Role:
        return self[node_id].status.soft_state.role

    def log(self, node_id: int) -> list[tuple[int, int]]:
        """Term and index of each entry."""
        log = self[node_id].raft.log
        return [(entry.term, entry.index) for entry in log.slice(log.first_index(), Index(log.last_index() + 1))]

    def load(self, node_id: int, *terms: int, term: int) -> None:
        """Give a node a log from index 2 on, before anything has happened."""
        storage = self.storages[NodeId(node_id)]
        storage.append([Entry(Term(each), Index(number + 2)) for number, each in enumerate(terms)])
        storage.hard_state = HardState(Term(term), NodeId(0), Index(1))
        config = replace(self.nodes[NodeId(node_id)].raft.core.config)
        self.nodes[NodeId(node_id)] = RawNode(config, storage, applied=Index(1))
