"""Messages, entries and Readys in the words of etcd's transcripts."""

from logboom.raft.codec import decode_conf_change
from logboom.raft.messages import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    NOBODY,
    ConfChangeType,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    NodeId,
    Snapshot,
    SoftState,
)
from logboom.raft.raw_node import Ready

TYPE_NAMES = {kind: "Msg" + "".join(word.capitalize() for word in kind.name.split("_")) for kind in MessageType}
TYPES = {name: kind for kind, name in TYPE_NAMES.items()}
ENTRY_TYPE_NAMES = {
    EntryType.NORMAL: "EntryNormal",
    EntryType.CONF_CHANGE: "EntryConfChange",
    EntryType.CONF_CHANGE_V2: "EntryConfChangeV2",
}
CHANGE_LETTERS = {
    ConfChangeType.ADD_NODE: "v",
    ConfChangeType.ADD_LEARNER_NODE: "l",
    ConfChangeType.REMOVE_NODE: "r",
    ConfChangeType.UPDATE_NODE: "u",
}


def quoted(data: bytes) -> str:
    """Go's %q, for the text that transcripts hold."""
    return '"' + data.decode("utf-8", "backslashreplace").replace("\\", "\\\\").replace('"', '\\"') + '"'


def describe_entry(entry: Entry) -> str:
    if entry.type is EntryType.NORMAL:
        content = quoted(entry.data)
    else:
        changes = decode_conf_change(entry).changes
        content = " ".join(f"{CHANGE_LETTERS[change.type]}{change.node_id}" for change in changes)
    return f"{entry.term}/{entry.index} {ENTRY_TYPE_NAMES[entry.type]}" + (f" {content}" if content else "")


def describe_entries(entries: tuple[Entry, ...]) -> str:
    return "".join(describe_entry(entry) + "\n" for entry in entries)


def describe_node(node_id: NodeId) -> str:
    names = {NOBODY: "None", LOCAL_APPEND_THREAD: "AppendThread", LOCAL_APPLY_THREAD: "ApplyThread"}
    return names.get(node_id, f"{node_id:x}")


def describe_hard_state(state: HardState) -> str:
    vote = f" Vote:{state.vote}" if state.vote != NOBODY else ""
    return f"Term:{state.term}{vote} Commit:{state.commit}"


def describe_soft_state(state: SoftState) -> str:
    return f"Lead:{state.lead} State:{state.role.value}"


def describe_conf_state(state: ConfState) -> str:
    def ids(of: tuple[NodeId, ...]) -> str:
        return "[" + " ".join(map(str, of)) + "]"

    return (
        f"Voters:{ids(state.voters)} VotersOutgoing:{ids(state.voters_outgoing)} Learners:{ids(state.learners)} "
        f"LearnersNext:{ids(state.learners_next)} AutoLeave:{str(state.auto_leave).lower()}"
    )


def describe_snapshot(snapshot: Snapshot) -> str:
    return f"Index:{snapshot.index} Term:{snapshot.term} ConfState:{describe_conf_state(snapshot.conf_state)}"


def describe_message(message: Message, indent: str = "") -> str:
    parts = [
        f"{indent}{describe_node(message.sender)}->{describe_node(message.to)} {TYPE_NAMES[message.type]}",
        f" Term:{message.term} Log:{message.log_term}/{message.index}",
    ]
    if message.reject:
        parts.append(f" Rejected (Hint: {message.reject_hint})")
    if message.commit != 0:
        parts.append(f" Commit:{message.commit}")
    if message.vote != NOBODY:
        parts.append(f" Vote:{message.vote}")
    if len(message.entries) == 1:
        parts.append(f" Entries:[{describe_entry(message.entries[0])}]")
    elif message.entries:
        lines = "".join(f"\n{indent}  {describe_entry(entry)}" for entry in message.entries)
        parts.append(f" Entries:[{lines}\n{indent}]")
    if message.snapshot is not None and not message.snapshot.is_empty:
        parts.append(f"\n{indent}  Snapshot: {describe_snapshot(message.snapshot)}")
    if message.responses:
        lines = "".join("\n" + describe_message(response, indent + "  ") for response in message.responses)
        parts.append(f" Responses:[{lines}\n{indent}]")
    return "".join(parts)


def describe_ready(ready: Ready) -> str:
    lines = []
    if ready.soft_state is not None:
        lines.append(describe_soft_state(ready.soft_state) + "\n")
    if ready.hard_state is not None:
        lines.append(f"HardState {describe_hard_state(ready.hard_state)}\n")
    if ready.read_states:
        lines.append(f"ReadStates {list(ready.read_states)}\n")
    if ready.entries:
        lines.append("Entries:\n" + describe_entries(ready.entries))
    if ready.snapshot is not None:
        lines.append(f"Snapshot {describe_snapshot(ready.snapshot)}\n")
    if ready.committed_entries:
        lines.append("CommittedEntries:\n" + describe_entries(ready.committed_entries))
    if ready.messages:
        lines.append("Messages:\n" + "".join(describe_message(message) + "\n" for message in ready.messages))
    if not lines:
        return "<empty Ready>"
    return f"Ready MustSync={str(ready.must_sync).lower()}:\n" + "".join(lines)
