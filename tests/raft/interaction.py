"""The command language of etcd's interaction transcripts (package rafttest): nodes without network, clock or disk.

Each command changes some of the nodes and prints what a reader of the transcript should see. Lines that etcd's core
logs are not printed here.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
from tests.raft.datadriven import Case
from tests.raft.describe import TYPES, describe_entries, describe_message, describe_ready

from logboom.base.errors import LogboomError
from logboom.raft.codec import decode_conf_change
from logboom.raft.config import RaftConfig
from logboom.raft.messages import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    NO_LIMIT,
    ConfChange,
    ConfChangeSingle,
    ConfChangeTransition,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Index,
    Message,
    MessageType,
    NodeId,
    Snapshot,
    Term,
)
from logboom.raft.raw_node import RawNode
from logboom.raft.read_only import ReadOnlyOption
from logboom.raft.storage import MemoryStorage

LEVELS = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL", "NONE")
LOG_LINE = re.compile(r"\s*(DEBUG|INFO|WARN|ERROR|FATAL) ")
CHANGE_TYPES = {
    "v": ConfChangeType.ADD_NODE,
    "l": ConfChangeType.ADD_LEARNER_NODE,
    "r": ConfChangeType.REMOVE_NODE,
    "u": ConfChangeType.UPDATE_NODE,
}
TRANSITIONS = {
    "auto": ConfChangeTransition.AUTO,
    "implicit": ConfChangeTransition.JOINT_IMPLICIT,
    "explicit": ConfChangeTransition.JOINT_EXPLICIT,
}


class CommandError(Exception):
    """What a command prints instead of going on."""


class AppenderStorage(MemoryStorage):
    """A log whose snapshot is always the state machine's latest: all data that were applied, one after the other."""

    def __init__(self, start: Snapshot) -> None:
        super().__init__()
        self.history = [start]

    def snapshot(self) -> Snapshot:
        return self.history[-1]

    def apply(self, entry: Entry, data: bytes, conf_state: ConfState | None) -> None:
        last = self.history[-1]
        self.history.append(Snapshot(entry.index, entry.term, conf_state or last.conf_state, last.data + data))


@dataclass
class Node:
    raw: RawNode
    storage: AppenderStorage
    config: RaftConfig
    append_work: list[Message] = field(default_factory=list)
    apply_work: list[Message] = field(default_factory=list)

    @property
    def node_id(self) -> NodeId:
        return self.config.node_id

    def write(self, state: HardState, entries: tuple[Entry, ...], snapshot: Snapshot | None) -> None:
        if not state.is_empty:
            self.storage.hard_state = state
        if snapshot is not None and not snapshot.is_empty:
            if entries:
                raise CommandError("can't apply snapshot and entries at the same time")
            self.storage.apply_snapshot(snapshot)
            return
        self.storage.append(entries)

    def apply(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if entry.type is EntryType.NORMAL:
                self.storage.apply(entry, entry.data, None)
                continue
            change = decode_conf_change(entry)
            self.storage.apply(entry, change.context, self.raw.apply_conf_change(change))


def parse_bool(text: str) -> bool:
    return text.lower() in ("true", "t", "1")


def without_log_lines(text: str) -> str:
    """What is compared of a transcript: everything but what etcd's core logged. An output without more is `ok`."""
    return "\n".join(line for line in text.splitlines() if not LOG_LINE.match(line)).strip() or "ok"


class InteractionEnv:
    """The nodes of one transcript and the messages between them. `handle` runs a command and gives its output."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.messages: list[Message] = []
        self._output: list[str] = []
        self._level = 0
        self._commands: dict[str, Callable[[Case], None]] = {
            "_breakpoint": lambda case: None,
            "add-nodes": self._add_nodes,
            "campaign": lambda case: self._first(case).raw.campaign(),
            "compact": self._compact,
            "deliver-msgs": self._deliver_msgs,
            "process-ready": lambda case: self._each(case, "handling Ready", self._process_ready),
            "process-append-thread": lambda case: self._each(case, "processing append thread", self._append_thread),
            "process-apply-thread": lambda case: self._each(case, "processing apply thread", self._apply_thread),
            "log-level": lambda case: self._set_level(case.arguments[0].key),
            "raft-log": lambda case: self._raft_log(self._first(case)),
            "raft-state": self._raft_state,
            "set-randomized-election-timeout": self._set_randomized_election_timeout,
            "stabilize": self._stabilize_command,
            "status": self._status,
            "tick-election": lambda case: self._tick(self._first(case), self._first(case).config.election_ticks),
            "tick-heartbeat": lambda case: self._tick(self._first(case), self._first(case).config.heartbeat_ticks),
            "transfer-leadership": self._transfer_leadership,
            "forget-leader": lambda case: self._first(case).raw.forget_leader(),
            "send-snapshot": self._send_snapshot,
            "propose": lambda case: self._first(case).raw.propose(case.arguments[1].key.encode()),
            "propose-conf-change": self._propose_conf_change,
            "report-unreachable": self._report_unreachable,
        }

    def handle(self, case: Case) -> str:
        """Run one command. Errors of nodes are output; at level NONE they are the only output."""
        self._output.clear()
        try:
            command = self._commands.get(case.command)
            if command is None:
                raise CommandError("unknown command")
            command(case)
        except (LogboomError, CommandError) as error:
            if self._is_quiet:
                return str(error)
            self._write(str(error))
        return "".join(self._output) or "ok"

    # --- output ---------------------------------------------------------------------------------------------------

    @property
    def _is_quiet(self) -> bool:
        return self._level == len(LEVELS) - 1

    def _write(self, text: str) -> None:
        if text and not self._is_quiet:
            self._output.append(text)

    def _indented(self, action: Callable[[], object]) -> None:
        outer, self._output = self._output, []
        try:
            action()
        finally:
            lines = "".join(self._output).splitlines()
            self._output = outer
            self._output.extend(f"  {line}\n" for line in lines)

    def _set_level(self, name: str) -> None:
        if name.upper() not in LEVELS:
            raise CommandError(f"log levels must be either of [{' '.join(LEVELS)}]")
        self._level = LEVELS.index(name.upper())

    # --- which nodes ----------------------------------------------------------------------------------------------

    def _first(self, case: Case) -> Node:
        return self.nodes[int(case.arguments[0].key) - 1]

    def _named(self, case: Case) -> list[Node]:
        return [self.nodes[int(word) - 1] for word in case.words()]

    def _each(self, case: Case, what: str, run: Callable[[Node], None]) -> None:
        """Run on each named node, under a heading where there are several."""
        nodes = self._named(case)
        if len(nodes) == 1:
            run(nodes[0])
            return
        for node in nodes:
            self._write(f"> {node.node_id} {what}\n")
            self._indented(lambda node=node: run(node))  # type: ignore[misc]

    # --- commands ---------------------------------------------------------------------------------------------------

    def _add_nodes(self, case: Case) -> None:
        config = RaftConfig(
            node_id=NodeId(1),
            draw=lambda bound: 0,
            election_ticks=3,
            heartbeat_ticks=1,
            max_inflight_messages=2**31 - 1,
        )
        snapshot = Snapshot()
        for argument in case.arguments[1:]:
            for value in argument.values:
                config, snapshot = self._option(argument.key, value, config, snapshot)
        if snapshot != Snapshot() and snapshot.index <= 1:
            raise CommandError("index must be specified as > 1 due to bootstrap")
        for _ in range(int(case.arguments[0].key)):
            self._add_node(config, snapshot)

    @staticmethod
    def _option(key: str, value: str, config: RaftConfig, start: Snapshot) -> tuple[RaftConfig, Snapshot]:
        state = start.conf_state
        match key:
            case "voters":
                state = ConfState((*state.voters, NodeId(int(value))), state.learners)
            case "learners":
                state = ConfState(state.voters, (*state.learners, NodeId(int(value))))
            case "index":
                return config, Snapshot(Index(int(value)), start.term, state, start.data)
            case "content":
                return config, Snapshot(start.index, start.term, state, value.encode())
            case "inflight":
                config = replace(config, max_inflight_messages=int(value))
            case "max-committed-size-per-ready":
                config = replace(config, max_applying_bytes=int(value))
            case "disable-conf-change-validation":
                config = replace(config, validate_conf_changes=not parse_bool(value))
            case "read-only":
                if value not in ("safe", "lease-based"):
                    raise CommandError(f'invalid read-only option "{value}"')
                # A lease without check_quorum is refused by the core; the order of the arguments is free.
                lease = value == "lease-based"
                config = replace(config, read_only=ReadOnlyOption(value), check_quorum=lease or config.check_quorum)
            case "async-storage-writes":
                config = replace(config, async_storage_writes=parse_bool(value))
            case "prevote":
                config = replace(config, pre_vote=parse_bool(value))
            case "checkquorum":
                config = replace(config, check_quorum=parse_bool(value))
            case "step-down-on-removal":
                config = replace(config, step_down_on_removal=parse_bool(value))
        return config, Snapshot(start.index, start.term, state, start.data)

    def _add_node(self, config: RaftConfig, start: Snapshot) -> None:
        if start != Snapshot():
            start = Snapshot(start.index, Term(1), start.conf_state, start.data)
        storage = AppenderStorage(start)
        if not start.is_empty:
            storage.apply_snapshot(start)
        config = replace(config, node_id=NodeId(len(self.nodes) + 1))
        self.nodes.append(Node(RawNode(config, storage, applied=start.index), storage, config))

    def _compact(self, case: Case) -> None:
        node = self._first(case)
        node.storage.compact(Index(int(case.arguments[1].key)))
        self._raft_log(node)

    def _deliver_msgs(self, case: Case) -> None:
        recipients = [(NodeId(int(word)), False) for word in case.words()]
        recipients += [(NodeId(int(value)), True) for value in case.values("drop")]
        assert len(recipients) == len(dict(recipients)), "can't both deliver and drop msgs to one node"
        kind = TYPES[case.values("type")[-1]] if case.values("type") else None
        if sum(self._deliver(to, drop=drop, kind=kind) for to, drop in recipients) == 0:
            self._write("no messages\n")

    def _deliver(self, to: NodeId, *, drop: bool = False, kind: MessageType | None = None) -> int:
        selected = [message for message in self.messages if self._is_for(message, to, drop=drop, kind=kind)]
        self.messages = [message for message in self.messages if not self._is_for(message, to, drop=drop, kind=kind)]
        for message in selected:
            self._write(("dropped: " if drop else "") + describe_message(message) + "\n")
            if drop:
                continue
            try:
                self.nodes[to - 1].raw.step(message)
            except LogboomError as error:
                self._write(f"{error}\n")
        return len(selected)

    @staticmethod
    def _is_for(message: Message, to: NodeId, *, drop: bool, kind: MessageType | None) -> bool:
        threads = (LOCAL_APPEND_THREAD, LOCAL_APPLY_THREAD)
        local = message.sender == message.to or message.sender in threads or message.to in threads
        return message.to == to and not (drop and local) and kind in (None, message.type)

    def _process_ready(self, node: Node) -> None:
        ready = node.raw.ready()
        self._write(describe_ready(ready))
        if not node.config.async_storage_writes:
            node.write(ready.hard_state or HardState(), ready.entries, ready.snapshot)
            node.apply(ready.committed_entries)
        for message in ready.messages:
            if message.to == LOCAL_APPEND_THREAD:
                node.append_work.append(message)
            elif message.to == LOCAL_APPLY_THREAD:
                node.apply_work.append(message)
            else:
                self.messages.append(message)
        if not node.config.async_storage_writes:
            node.raw.advance()

    def _append_thread(self, node: Node) -> None:
        if not node.append_work:
            self._write("no append work to perform")
            return
        work = node.append_work.pop(0)
        self._begin_work(work)
        node.write(HardState(work.term, work.vote, work.commit), work.entries, work.snapshot)
        self._end_work(work)

    def _apply_thread(self, node: Node) -> None:
        if not node.apply_work:
            self._write("no apply work to perform")
            return
        work = node.apply_work.pop(0)
        self._begin_work(work)
        node.apply(work.entries)
        self._end_work(work)

    def _begin_work(self, work: Message) -> None:
        self._write("Processing:\n" + describe_message(msgspec.structs.replace(work, responses=())) + "\n")

    def _end_work(self, work: Message) -> None:
        self._write("Responses:\n" + "".join(describe_message(response) + "\n" for response in work.responses))
        self.messages.extend(work.responses)

    def _raft_log(self, node: Node) -> None:
        first, last = node.storage.first_index(), node.storage.last_index()
        if last < first:
            self._write(f"log is empty: first index={first}, last index={last}")
            return
        self._write(describe_entries(node.storage.entries(first, Index(last + 1), NO_LIMIT)))

    def _raft_state(self, case: Case) -> None:
        for node in self.nodes:
            status = node.raw.status
            voter = "(Voter)" if node.node_id in status.config.voters.ids else "(Non-Voter)"
            soft = status.soft_state
            self._write(f"{node.node_id}: {soft.role.value} {voter} Term:{status.hard_state.term} Lead:{soft.lead}\n")

    def _set_randomized_election_timeout(self, case: Case) -> None:
        (timeout,) = case.values("timeout")
        self._first(case).raw.raft.core.randomized_election_ticks = int(timeout)

    def _stabilize_command(self, case: Case) -> None:
        before = self._level
        try:
            for name in case.values("log-level"):
                self._set_level(name)
            self._stabilize(self._named(case) or self.nodes)
        finally:
            self._level = before

    def _stabilize(self, nodes: list[Node]) -> None:
        """Handle, deliver and work until nothing is left to do."""
        done = False
        while not done:
            done = True
            for node in nodes:
                if node.raw.has_ready():
                    self._heading(node, "handling Ready", lambda node=node: self._process_ready(node))  # type: ignore[misc]
                    done = False
            for node in nodes:
                if any(message.to == node.node_id for message in self.messages):
                    self._heading(node, "receiving messages", lambda node=node: self._deliver(node.node_id))  # type: ignore[misc]
                    done = False
            for node in nodes:
                if node.append_work:
                    self._write(f"> {node.node_id} processing append thread\n")
                    while node.append_work:
                        self._indented(lambda node=node: self._append_thread(node))  # type: ignore[misc]
                    done = False
            for node in nodes:
                if node.apply_work:
                    self._write(f"> {node.node_id} processing apply thread\n")
                    while node.apply_work:
                        self._indented(lambda node=node: self._apply_thread(node))  # type: ignore[misc]
                    done = False

    def _heading(self, node: Node, what: str, run: Callable[[], object]) -> None:
        self._write(f"> {node.node_id} {what}\n")
        self._indented(run)

    def _status(self, case: Case) -> None:
        for node_id, progress in sorted(self._first(case).raw.status.progress.items()):
            self._write(f"{node_id}: {progress}\n")

    @staticmethod
    def _tick(node: Node, count: int) -> None:
        for _ in range(count):
            node.raw.tick()

    def _transfer_leadership(self, case: Case) -> None:
        (source,), (target,) = case.values("from"), case.values("to")
        self.nodes[int(source) - 1].raw.transfer_leader(NodeId(int(target)))

    def _send_snapshot(self, case: Case) -> None:
        source, target = self._named(case)
        message = Message(
            type=MessageType.SNAP,
            term=source.raw.status.hard_state.term,
            sender=source.node_id,
            to=target.node_id,
            snapshot=source.storage.snapshot(),
        )
        self.messages.append(message)
        self._write(describe_message(message))

    def _propose_conf_change(self, case: Case) -> None:
        transition = ConfChangeTransition.AUTO
        single = False
        for argument in case.arguments[1:]:
            for value in argument.values:
                if argument.key == "v1":
                    single = parse_bool(value)
                elif argument.key != "transition":
                    raise CommandError(f"unknown command {argument.key}")
                elif value not in TRANSITIONS:
                    raise CommandError(f"unknown transition {value}")
                else:
                    transition = TRANSITIONS[value]
        changes = tuple(ConfChangeSingle(CHANGE_TYPES[word[0]], NodeId(int(word[1:]))) for word in case.input.split())
        if not single:
            self._first(case).raw.propose_conf_change(ConfChangeV2(changes, transition))
            return
        if len(changes) > 1 or transition is not ConfChangeTransition.AUTO:
            raise CommandError("v1 conf change can only have one operation and no transition")
        self._first(case).raw.propose_conf_change(ConfChange(changes[0]))

    def _report_unreachable(self, case: Case) -> None:
        if len(self._named(case)) != 2:
            raise CommandError("must specify exactly two node indexes: node on which to report, and reported node")
        reporter, reported = self._named(case)
        reporter.raw.report_unreachable(reported.node_id)
