"""Which partition a message belongs to, if its subject does not name it. Pure.

Every broker that leads a partition of the stream makes this decision for each message and takes those of its own
partitions, so the result depends on nothing but the message and the stream's settings.
"""

from bisect import bisect_right

from logboom.client.partitioner import partition_of
from logboom.metadata.attachment import PartitionerChoice, PartitionerKind


class Partitioner:
    """The choice of one stream with several partitions."""

    def __init__(self, choice: PartitionerChoice, partitions: int) -> None:
        """`choice` is not round robin: there the server of NATS chooses."""
        self._kind = choice.kind
        self._tokens = tuple(number - 1 for number in choice.tokens)
        self._bounds = tuple(bound.encode() for bound in choice.bounds)
        self._partitions = partitions

    def choose(self, key: bytes | None, subject: bytes) -> int:
        """The partition, from 0.

        A message without the key that it is chosen by goes by its subject; a token that a subject does not have is
        empty.
        """
        match self._kind:
            case PartitionerKind.RANGE:
                value = self._tokens_of(subject) if self._tokens else subject if key is None else key
                return min(bisect_right(self._bounds, value), self._partitions - 1)
            case PartitionerKind.TOKEN:
                return partition_of(self._tokens_of(subject), self._partitions)
            case PartitionerKind.KEY if key is not None:
                return partition_of(key, self._partitions)
        return partition_of(subject, self._partitions)

    def _tokens_of(self, subject: bytes) -> bytes:
        tokens = subject.split(b".")
        return b".".join(tokens[place] if place < len(tokens) else b"" for place in self._tokens)
