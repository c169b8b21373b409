"""The streams of a run that are attached to NATS, and who publishes to them.

One has its subjects for itself, and its partitions go by subject. Others may share theirs as a group: a nats-server
gives each message to one of their partitions.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from logboom.client.partitioner import partition_of
from logboom.sim.client import SimClient, TopicPartition

FEED: Final = "feed"
"""The stream that has its subjects for itself."""
SHARED: Final = "shared"
"""What subjects and names of those begin with that share theirs."""
SUBJECTS_SETTING: Final = "logboom.nats.subjects"
SHARED_SUBJECTS: Final = f"{SHARED}.>"
MEMBERS: Final[Mapping[str, int]] = {f"{SHARED}-1": 1, f"{SHARED}-2": 1, f"{SHARED}-3": 2}
"""The streams of the group, and how many partitions each has."""
_FEED_PARTITIONS: Final = 2
_ALL_CONFIG: Final[Mapping[str, str]] = {
    "logboom.nats.duplicate.window.ms": "86400000",  # wall clocks jump by up to an hour
    "segment.bytes": "65536",
}
_FEED_CONFIG: Final[Mapping[str, str]] = {**_ALL_CONFIG, SUBJECTS_SETTING: f"{FEED}.>"}
_SHARED_CONFIG: Final[Mapping[str, str]] = {
    **_ALL_CONFIG,
    SUBJECTS_SETTING: SHARED_SUBJECTS,
    "logboom.nats.group": SHARED,
    "logboom.nats.partitioner": "round_robin",
}


class Destination(NamedTuple):
    """Where messages go whose subjects begin with a word."""

    first_token: str
    partitions: Sequence[TopicPartition]
    is_group: bool
    """Whether a nats-server chooses the partition of each message. Ids of messages are known to their partition alone,
    and of those of one publisher the order is not kept while members or leaders change."""

    def places(self, subject: bytes) -> Sequence[TopicPartition]:
        """The partitions of which one is to have a message."""
        if self.is_group:
            return self.partitions
        return [self.partitions[partition_of(subject, len(self.partitions))]]


class AttachedStreams:
    """Those of one run."""

    def __init__(self, beside: Collection[str]) -> None:
        """`beside`: what the run has beside the stream of which all records stay."""
        self.feed = [TopicPartition(FEED, n) for n in range(_FEED_PARTITIONS)] if FEED in beside else []
        self.shared = [TopicPartition(name, n) for name, count in _members(beside) for n in range(count)]
        self.partitions = [*self.feed, *self.shared]

    def destinations(self, kinds: Sequence[str], shared_kinds: Sequence[str]) -> Iterator[tuple[str, str, Destination]]:
        """For each publisher what its name begins with, how it publishes, and where to: one for each of these kinds."""
        if self.feed:
            feed = Destination(FEED, self.feed, is_group=False)
            yield from (("publisher", kind, feed) for kind in kinds)
        if self.shared:
            group = Destination(SHARED, self.shared, is_group=True)
            yield from (("sharer", kind, group) for kind in shared_kinds)

    async def create(self, client: SimClient, config: Mapping[str, str], replicas: int) -> None:
        """Create them. Raises AskError and RefusedError."""
        if self.feed:
            await client.create_stream(FEED, len(self.feed), {**config, **_FEED_CONFIG}, replicas)
        for name, partitions in MEMBERS.items() if self.shared else ():
            await client.create_stream(name, partitions, {**config, **_SHARED_CONFIG}, replicas)


def _members(beside: Collection[str]) -> Sequence[tuple[str, int]]:
    return tuple(MEMBERS.items()) if SHARED in beside else ()
