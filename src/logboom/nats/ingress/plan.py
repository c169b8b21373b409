"""Which subscriptions a broker should have: those of the partitions that it leads. Pure.

    one partition            its leader subscribes to the stream's subjects
    `{partition}` in one     each leader subscribes to the subject of its partition
    a partitioner            each broker that leads a partition subscribes once, and drops what others lead
    round robin              each leader subscribes in one queue group; the server chooses a member for each message

A stream of a group subscribes in the group's queue group. This cannot be combined with a partitioner: the server would
choose one broker for a message, and the partitioner another.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from logboom.base.ids import StreamId

PARTITION_TOKEN: Final = "{partition}"  # noqa: S105  # of a subject
_QUEUE_PREFIX: Final = "logboom."


class Wish(NamedTuple):
    """One subscription."""

    stream_id: StreamId
    subject: str
    queue: str | None
    partition: int | None
    """Where its messages go; None: the partitioner decides for each."""


class Attached(NamedTuple):
    """What the plan has to know of a stream."""

    stream_id: StreamId
    name: str
    subjects: Sequence[str]
    group: str | None
    partitions: int
    is_chosen_by_server: bool
    """Whether the server chooses among the partitions (round robin)."""
    chosen_by: str = ""
    """By what partitions are chosen otherwise."""


def wishes(stream: Attached, led: Iterable[int]) -> set[Wish]:
    """The subscriptions of a broker that leads these partitions of a stream."""
    indexes = sorted(led)
    found = set()
    for subject in stream.subjects:
        if PARTITION_TOKEN in subject:
            found |= {
                Wish(stream.stream_id, subject.replace(PARTITION_TOKEN, str(index)), stream.group, index)
                for index in indexes
            }
        elif stream.partitions == 1 or stream.is_chosen_by_server:
            queue = stream.group
            if stream.partitions > 1:
                queue = queue or f"{_QUEUE_PREFIX}{stream.name}"
            found |= {Wish(stream.stream_id, subject, queue, index) for index in indexes}
        elif indexes and stream.group is None:
            found.add(Wish(stream.stream_id, subject, None, None))
    return found


def in_order(some: Iterable[Wish]) -> list[Wish]:
    """The order in which subscriptions begin and end: the same in every process, as a set of texts has none."""
    return sorted(some, key=lambda wish: (wish.subject, -1 if wish.partition is None else wish.partition))


def are_chosen_apart(before: Attached, after: Attached) -> bool:
    """Whether a broker that has heard of this change and one that has not may both take a message, or neither of them:
    each chooses partitions by what it knows."""
    changed = (before.partitions, before.chosen_by, before.is_chosen_by_server) != (
        after.partitions,
        after.chosen_by,
        after.is_chosen_by_server,
    )
    plain = any(PARTITION_TOKEN not in subject for subject in (*before.subjects, *after.subjects))
    by_server = before.is_chosen_by_server and after.is_chosen_by_server and before.partitions > 1
    return changed and plain and after.partitions > 1 and not by_server


def are_chosen_by_brokers(stream: Attached) -> bool:
    """Whether brokers hear messages that they leave to others, each by what it knows of partitions and leaders."""
    return any(wish.partition is None for wish in wishes(stream, range(stream.partitions)))


def cannot_be_grouped(stream: Attached) -> bool:
    """Whether the stream is in a group, and has more partitions than a group can be split over."""
    plain = any(PARTITION_TOKEN not in subject for subject in stream.subjects)
    return stream.group is not None and stream.partitions > 1 and plain and not stream.is_chosen_by_server
