"""The idempotent producer's core for one partition: sequences, what is sent when, and what each answer means.

Pure: it knows no sockets, clocks, threads or records. Its users encode batches, send them and tell what came back:

    batch = partition.append(content, count)      # takes the next sequence number
    while (batch := partition.next_to_send()):    # in this order alone
        partition.sent(batch)
    step = partition.answered(batch, code)        # or partition.lost(batch), where no answer will come
    step.acknowledged                             # batches that are in the log now, in order
    step.outcome                                  # what to do next, see `Outcome`

A broker takes the batches of a producer in the order of their sequences and each of them once; it remembers the last
five of each partition (KIP-98, ProducerStateEntry.NUM_BATCHES_TO_RETAIN). So a batch whose fate is unknown is sent
again as it is, with everything after it, and only once the answers to all that is under way are there. A refusal that
means "nothing was written" (`codes.REFUSED`) frees the sequences from that batch on: `withdraw` hands the batches back,
and the next append takes the first one's sequence. Where one of them was sent before on a connection that broke, a copy
of it may still arrive, and no other records may ever have its sequence; where the broker has lost the producer
(KIP-360), its sequences mean nothing. Both are `Outcome.DEAD`: the user starts over with another producer id
(`restart`), which may repeat what was under way.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from logboom.client.codes import OUT_OF_ORDER, PRODUCER_LOST, REFUSED, TAKEN, ErrorCode
from logboom.records import add_to_sequence

MAX_IN_FLIGHT: Final = 5
"""The number of batches of a producer that a broker remembers."""

_SOMETHING_BEFORE_IS_MISSING: Final = frozenset((OUT_OF_ORDER, ErrorCode.unknown_producer_id))
"""Errors for a batch whose predecessor was not accepted: the second one if that was the first batch of its producer."""

Content = TypeVar("Content")


class Outcome(Enum):
    """What to do after an answer."""

    GOING_ON = auto()
    """Nothing: send what `next_to_send` has."""
    AGAIN = auto()
    """What is left is to be sent again, after a pause."""
    REFUSED = auto()
    """The first batch is refused for good, with the code in its `refusal`: `withdraw`, and say what becomes of it."""
    DEAD = auto()
    """The producer's sequences are of no use any more."""


@dataclass(slots=True, eq=False)
class SequencedBatch(Generic[Content]):
    """One batch on its way."""

    content: Content
    count: int
    """The number of its records, and of the sequence numbers that it takes."""
    sequence: int
    under_way: bool = False
    acknowledged: bool = False
    refusal: ErrorCode | None = None
    was_lost: bool = False
    """An answer to it never came: a copy may still be on its way in a connection that was given up."""


@dataclass(frozen=True, slots=True)
class Step(Generic[Content]):
    """What an answer brought about."""

    outcome: Outcome
    acknowledged: tuple[SequencedBatch[Content], ...] = ()
    """Batches that are in the log, in order, and gone from the partition's queue."""


@dataclass(slots=True, eq=False)
class PartitionProducer(Generic[Content]):
    """The batches of one partition that are made and not known to be in the log. See the module."""

    max_in_flight: int = MAX_IN_FLIGHT
    batches: deque[SequencedBatch[Content]] = field(default_factory=deque)
    """Oldest first."""
    next_sequence: int = 0
    _draining: bool = False
    """Something failed: nothing is sent until all batches in flight are answered."""

    @property
    def is_full(self) -> bool:
        """Whether no further batch may be appended now."""
        return self._draining or len(self.batches) >= self.max_in_flight

    @property
    def is_draining(self) -> bool:
        """Whether batches in flight have to be answered before anything is sent."""
        return self._draining

    def append(self, content: Content, count: int) -> SequencedBatch[Content]:
        """A new batch after all others, with the next sequence."""
        batch = SequencedBatch(content, count, self.next_sequence)
        self.next_sequence = add_to_sequence(self.next_sequence, count)
        self.batches.append(batch)
        return batch

    def next_to_send(self) -> SequencedBatch[Content] | None:
        """The oldest batch that is neither under way nor in the log; None where there is none, or none may be sent."""
        if self._draining:
            return None
        return next((batch for batch in self.batches if not batch.under_way and not batch.acknowledged), None)

    def sent(self, batch: SequencedBatch[Content]) -> None:
        """The batch is in flight."""
        batch.under_way, batch.refusal = True, None

    def answered(self, batch: SequencedBatch[Content], code: ErrorCode) -> Step[Content]:
        """The broker answered a batch with this code."""
        batch.under_way = False
        first = next((one for one in self.batches if not one.acknowledged), None)
        if code in TAKEN:
            batch.acknowledged = True
        elif code in _SOMETHING_BEFORE_IS_MISSING and batch is not first:
            # If the broker has lost the producer indeed, its answer to the first batch will say so.
            self._draining = True
        elif code == OUT_OF_ORDER or code in PRODUCER_LOST:
            return Step(Outcome.DEAD)
        else:
            self._draining = True
            if code in REFUSED:
                batch.refusal = code
        return self._concluded()

    def lost(self, batch: SequencedBatch[Content]) -> Step[Content]:
        """No answer will come: the connection is gone. The batch may be in the log or not."""
        batch.under_way, batch.was_lost = False, True
        self._draining = True
        return self._concluded()

    def _concluded(self) -> Step[Content]:
        done: list[SequencedBatch[Content]] = []
        while self.batches and self.batches[0].acknowledged:
            done.append(self.batches.popleft())
        outcome = Outcome.GOING_ON
        if self._draining and not any(batch.under_way for batch in self.batches):
            self._draining = False
            # The first batch that is left decides: those after it were refused for its sake.
            if not self.batches or self.batches[0].refusal is None:
                outcome = Outcome.AGAIN
            else:
                # A copy that arrives late must not meet other records under its sequence: the broker would take these
                # for repeats of it.
                outcome = Outcome.DEAD if any(batch.was_lost for batch in self.batches) else Outcome.REFUSED
        return Step(outcome, tuple(done))

    def withdraw(self) -> list[SequencedBatch[Content]]:
        """Takes all batches back after a refusal; none of them is in the log, and their sequences are free again."""
        batches = list(self.batches)
        self.batches.clear()
        if batches:
            self.next_sequence = batches[0].sequence
        return batches

    def restart(self) -> None:
        """Send everything that is left with a new producer id, whose sequences begin at 0."""
        self._draining = False
        self.next_sequence = 0
        for batch in self.batches:
            batch.under_way, batch.was_lost, batch.refusal, batch.sequence = False, False, None, self.next_sequence
            self.next_sequence = add_to_sequence(self.next_sequence, batch.count)
