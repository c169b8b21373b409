"""Idempotent producers of which a batch was not taken, for no fault of theirs: what they have sent behind it gets the
same answer until they have sent it again.

Clients have up to five batches on their way. Where the first was refused, since the partition had no leader here or too
few replicas in sync at that moment, or was taken back for want of room, the second may come when that is over. Its
sequence does not follow, and an answer that says so is final: from OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka goes on in a
new epoch, and doubles what it has sent to other partitions and got no answer for.

On the loop alone.
"""

from collections.abc import Iterable
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.ports import Clock

GAP_MAX_S: Final = 120.0
"""How long a producer may take to send again what was not taken, while it sends what follows."""
PRODUCERS_MAX: Final = 10_000


class RefusedProducers:
    """See the module. Life: that of the partition."""

    __slots__ = ("_answers", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[int, tuple[LogboomError, float]] = {}

    def note(self, producers: Iterable[int], error: LogboomError) -> None:
        """Batches of these were answered with `error`."""
        until_s = self._clock.monotonic_s() + GAP_MAX_S
        for producer in producers:
            self._answers.pop(producer, None)
            self._answers[producer] = error, until_s
            if len(self._answers) > PRODUCERS_MAX:
                del self._answers[next(iter(self._answers))]

    def caught_up(self, producer: int) -> None:
        """A batch of this one was taken."""
        if self._answers:
            self._answers.pop(producer, None)

    def answer(self, producer: int) -> LogboomError | None:
        """The answer to a batch with a gap before it; None where the gap is the producer's own."""
        error, until_s = self._answers.get(producer, (None, 0.0))
        return error if self._clock.monotonic_s() < until_s else None

    def clear(self) -> None:
        """Another leader may take what comes next."""
        self._answers.clear()
