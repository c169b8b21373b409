"""What a record makes of the assignment of one partition."""

from typing import Any

import pytest
from msgspec.structs import asdict, fields

from logboom.base.ids import BrokerId, Epoch, PartitionEpoch
from logboom.metadata.assignment import Assignment, PartitionChange, Replicas


def brokers(*ids: int) -> Replicas:
    return tuple(map(BrokerId, ids))


BEFORE = Assignment(
    replicas=brokers(1, 2, 3),
    isr=brokers(1, 2),
    leader=BrokerId(1),
    leader_epoch=Epoch(4),
    partition_epoch=PartitionEpoch(7),
    elr=brokers(3),
    last_known=brokers(2, 3),
    adding=brokers(2),
    removing=brokers(1),
    observers=brokers(8),
)


@pytest.mark.parametrize("name", [one.name for one in fields(PartitionChange) if one.name != "index"])
def test_a_change_replaces_what_it_names_and_nothing_else(name: str) -> None:
    value: Any = BrokerId(9) if name == "leader" else brokers(9)
    after = BEFORE.after(PartitionChange(index=0, **{name: value}))
    epochs = {"partition_epoch": 8, "leader_epoch": 5 if name == "leader" else 4}
    assert asdict(after) == asdict(BEFORE) | epochs | {name: value}


def test_nobody_left_is_a_change_too() -> None:
    assert BEFORE.after(PartitionChange(index=0, observers=(), elr=())) == Assignment(
        BEFORE.replicas,
        BEFORE.isr,
        BEFORE.leader,
        BEFORE.leader_epoch,
        PartitionEpoch(8),
        last_known=BEFORE.last_known,
        adding=BEFORE.adding,
        removing=BEFORE.removing,
    )
