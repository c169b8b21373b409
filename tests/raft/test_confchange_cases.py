"""etcd's published cases of configuration changes: the configuration and progress that follow, or the refusal."""

from pathlib import Path

import pytest
from tests.raft.datadriven import Case, case_files, read_cases

from logboom.raft.confchange import Changer
from logboom.raft.errors import ConfChangeError
from logboom.raft.messages import ConfChangeSingle, ConfChangeType, Index, NodeId
from logboom.raft.tracker import Configuration, ProgressMap, ProgressTracker

TYPES = {
    "v": ConfChangeType.ADD_NODE,
    "l": ConfChangeType.ADD_LEARNER_NODE,
    "r": ConfChangeType.REMOVE_NODE,
    "u": ConfChangeType.UPDATE_NODE,
}


def changes_of(text: str) -> list[ConfChangeSingle]:
    return [ConfChangeSingle(TYPES[word[0]], NodeId(int(word[1:]))) for word in text.split()]


def run(changer: Changer, case: Case) -> tuple[Configuration, ProgressMap]:
    changes = changes_of(case.input)
    match case.command:
        case "simple":
            return changer.simple(changes)
        case "enter-joint":
            return changer.enter_joint(changes, auto_leave=case.values("autoleave") == ("true",))
        case "leave-joint" if not changes:
            return changer.leave_joint()
    raise ConfChangeError("this command takes no input")


@pytest.mark.parametrize("path", case_files("confchange"))
def test_published_cases_of_configuration_changes(path: Path) -> None:
    tracker = ProgressTracker(max_inflight_messages=10, max_inflight_bytes=0)
    for last_index, case in enumerate(read_cases(path)):
        try:
            tracker.config, tracker.progress = run(Changer(tracker, Index(last_index)), case)
        except ConfChangeError as error:
            actual = str(error)
        else:
            members = (f"{node_id}: {progress}" for node_id, progress in tracker.members())
            actual = "\n".join([str(tracker.config), *members])
        assert actual == case.expected.strip(), f"{path.name}:{case.line}"
