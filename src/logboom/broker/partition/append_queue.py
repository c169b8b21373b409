"""Batches on their way into one log: enqueued, staged at the end of the event loop's turn, and answered once they are
safe. Messages that front ends publish without a batch become batches here (`publish_stage`).

Everything that arrives in one turn is staged together and written with one write, provided that no batch is of an
idempotent producer and all fit into the segment. Acks are sent in the order of the appends.

A batch with a condition that has to be looked up in the log first is held, together with everything after it: the
batches of a producer must keep their order (idempotent ones are refused otherwise), and a condition is compared with
what immediately precedes its batch. Messages with ids are held likewise until the ids in the log are known.

Knows the log, the rules of appends and the clock; not the flusher, nor what commits an offset: `drain`,
`local_end_moved` and `committed` are called by those who do. On the loop alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias, cast

from logboom.base.errors import (
    InvalidProducerEpochError,
    LogboomError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownStreamError,
)
from logboom.base.ids import NO_EPOCH, Epoch, Offset
from logboom.base.ports import Clock
from logboom.broker.metrics import Counters
from logboom.broker.partition.append_acks import AppendAcks
from logboom.broker.partition.append_notes import AppendNotes
from logboom.broker.partition.condition_check import ConditionCheck
from logboom.broker.partition.conditions import ConditionalBatch
from logboom.broker.partition.message_ids import MessageIds
from logboom.broker.partition.publications import ACKS_ALL, TERM_ERRORS, PublishRun
from logboom.broker.partition.publish_stage import PublishStage
from logboom.broker.partition.refused_producers import RefusedMemory, RefusedProducers
from logboom.broker.partition.validation import AppendRules, Checked
from logboom.broker.partition.waiters import RunDone, RunResult, deliver_all, refused
from logboom.broker.settled_clock import SettledClock
from logboom.records import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, read_header
from logboom.storage import Appended, Batch, FirstSequence, LogConfig, ProducerTable, Staged, first_copy

_Arrived: TypeAlias = bytearray | memoryview | Checked
"""A batch as it came, or as it was checked while it waited."""
_Run: TypeAlias = tuple[Sequence[_Arrived], int, RunDone]
"""Batches that came together, the acks that were asked for, and the callback of their result."""


class _Held(NamedTuple):
    """A run that waits for its conditions to be decided."""

    checked: Sequence[Checked]
    now_ms: int
    """When it was checked, which its records may be stamped with."""
    acks: int
    done: RunDone

    @property
    def conditional(self) -> list[ConditionalBatch]:
        return [one for one in self.checked if isinstance(one, ConditionalBatch)]


class Epochs(Protocol):
    """The leader epochs of a log."""

    def at(self, offset: Offset) -> Epoch: ...


class Log(Protocol):
    """The part of a `storage.PartitionLog` that takes appends."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def written_end(self) -> Offset: ...
    @property
    def durable_end(self) -> Offset: ...
    @property
    def producers(self) -> ProducerTable: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def epochs(self) -> Epochs: ...

    def append(
        self,
        buffer: bytearray | memoryview,
        headers: Sequence[tuple[int, BatchHeader]],
        *,
        leader_epoch: Epoch,
        now_ms: int,
    ) -> Appended: ...

    def append_run(self, run: Sequence[Batch], *, leader_epoch: Epoch, now_ms: int) -> Staged | None: ...


class AppendQueue:
    """See the module. Life: that of the partition; refuses everything once `refusal` is set."""

    __slots__ = (
        "_acks",
        "_arrived",
        "_clock",
        "_conditions",
        "_counters",
        "_held",
        "_ids",
        "_log",
        "_notes",
        "_refused_producers",
        "_settled_clock",
        "_stage",
        "commit_refusal",
        "doubt",
        "leader_epoch",
        "refusal",
        "rules",
    )

    def __init__(
        self,
        log: Log,
        rules: AppendRules,
        conditions: ConditionCheck,
        ids: MessageIds,
        clock: Clock,
        settled_clock: SettledClock,
        counters: Counters,
        refused: RefusedMemory,
    ) -> None:
        self.rules = rules
        self.leader_epoch: Epoch = NO_EPOCH
        """Written into every batch that is staged."""
        self.refusal: LogboomError | None = None
        """Why every append is refused; None if appends are accepted."""
        self.commit_refusal: LogboomError | None = None
        """Why appends with acks=all are refused; None if they are accepted."""
        self.doubt: Callable[[], LogboomError | None] = _no_doubt
        """Why this broker's state of producers may be out of date, if it may: the answer where a sequence would be
        refused."""
        self._log = log
        self._conditions = conditions
        self._ids = ids
        self._notes = AppendNotes(conditions, ids, counters)
        self._stage = PublishStage(log, ids, self._notes)
        self._clock = clock
        self._settled_clock = settled_clock
        self._counters = counters
        self._arrived: list[_Run | PublishRun] = []
        self._held: _Held | PublishRun | None = None
        self._acks = AppendAcks(lambda: self.safe_end, counters)
        self._refused_producers = RefusedProducers(clock, refused)

    @property
    def safe_end(self) -> Offset:
        """The offset below which this broker's own copy is as safe as the stream asks for."""
        return self._log.durable_end if self.rules.syncs else self._log.written_end

    def begin(self, epoch: Epoch, committed: Offset) -> None:
        """A leadership begins: its epoch, and the offset below which the log is committed. Nothing is waiting."""
        self.leader_epoch = epoch
        self._acks.committed_end = committed
        self._ids.forget()  # another leader may have written meanwhile
        self._refused_producers.begin()

    # --- staging ------------------------------------------------------------------------------------------------

    def enqueue(self, run: Sequence[bytearray | memoryview], acks: int, done: RunDone) -> None:
        """Take batches that came together; `drain` stages them."""
        self._arrived.append((run, acks, done))

    def check_last(self) -> None:
        """Check the batches that came last, which are not drained at once. Those that are stamped with the time of
        their append are not checked before."""
        last = self._arrived[-1]
        if not isinstance(last, PublishRun) and not self.rules.stamps_append_time:
            run, acks, done = last
            self._arrived[-1] = _checked(run, self.rules, self._clock.wall_ms()), acks, done

    def publish(self, run: PublishRun) -> None:
        """Take messages that came together; `drain` stages them."""
        self._arrived.append(run)

    def drain(self) -> int:
        """Stage all that was enqueued; returns the bytes staged. Batches that raise stay enqueued."""
        arrived = self._arrived
        self._notes.staged_bytes = 0
        if self._held is not None:
            self._append_held(self._held)
        while arrived and self._held is None:
            if isinstance(arrived[0], PublishRun):
                self._publish(arrived[0])
                del arrived[0]
                continue
            runs = _with_equal_acks(arrived)
            acks = runs[0][1]
            if len(runs) == 1:
                self._append(runs[0][0], acks, runs[0][2])
            else:
                self._append([records for run, _, _ in runs for records in run], acks, partial(_split, runs))
            del arrived[: len(runs)]
        return self._notes.staged_bytes

    def _append(self, batches: Sequence[_Arrived], acks: int, done: RunDone) -> None:
        if self._is_refused(batches, acks, done):
            return
        now_ms = self._clock.wall_ms()
        checked = _checked(batches, self.rules, now_ms)
        offsets = self._append_together(checked, now_ms)
        if offsets is None:
            if any(isinstance(one, ConditionalBatch) for one in checked):
                self._held = _Held(checked, now_ms, acks, done)
                self._append_held(self._held)
            else:
                self._append_each(checked, now_ms, acks, done)
            return
        result = self._result(offsets, now_ms)
        if acks == 0:
            done(result)
        else:
            self._acks.of(acks).add(self._log.log_end_offset, done, result)

    def _is_refused(self, batches: Sequence[object], acks: int, done: RunDone) -> bool:
        """Whether a run is refused whatever is in it; if so, it has been answered."""
        refusal = self.refusal or (self.commit_refusal if acks == ACKS_ALL else None)
        if refusal is None:
            return False
        self._counters.refused_appends += len(batches)
        self._refused_producers.note(_first_sequences(batches), refusal)
        done(_nothing_taken(batches, refusal))
        return True

    def _append_held(self, held: _Held | PublishRun) -> None:
        """Append a run that was held, if it can be decided."""
        if isinstance(held, PublishRun):
            self._publish(held)
        elif self._is_refused(held.checked, held.acks, held.done):
            self._held = None
        elif self._conditions.ready(held.conditional):
            self._append_each(held.checked, held.now_ms, held.acks, held.done)
            self._conditions.settled()
            self._held = None

    def _append_together(self, checked: Sequence[Checked], now_ms: int) -> list[Offset] | None:
        """Stage all batches as one, if all are valid and none is of an idempotent producer. Returns their offsets, or
        None."""
        batches = [one for one in checked if isinstance(one, tuple) and one[1].producer_id < 0]
        if len(batches) < len(checked):
            return None
        try:
            staged = self._log.append_run(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except StorageError:
            return None  # `_append_each` meets it again, batch by batch, and gives each its own outcome
        if staged is None:
            return None
        offsets = [offset for offset, _, _ in staged.batches]
        self._notes.batches(batches, offsets[0], staged.next_offset)
        return offsets

    def _append_each(self, checked: Sequence[Checked], now_ms: int, acks: int, done: RunDone) -> None:
        """Stage batch by batch, since one may be invalid, a duplicate, or begin a new segment."""
        outcomes: list[Offset | LogboomError] = []
        needed, before = -1, self._log.log_end_offset
        for one in checked:
            appended = self._append_one(one, now_ms)
            if isinstance(appended, LogboomError):
                self._counters.refused_appends += 1
                outcomes.append(appended)
            else:
                needed = max(needed, appended.last_offset + 1)
                outcomes.append(appended.base_offset)
        if self._acks.is_served(needed, before, acks):
            done(self._result(outcomes, now_ms))
        else:
            self._acks.of(acks).add(needed, done, self._result(outcomes, now_ms))

    def _publish(self, run: PublishRun) -> None:
        """Stage messages, or hold them until the ids of those that are in the log are known."""
        self._held = None
        if self._is_refused(run.contents, run.acks, run.answer):
            return
        if run.asks_for_ids and not self._ids.ready():
            self._held = run
            return
        before, now_ms = self._log.log_end_offset, self._clock.wall_ms()
        outcomes = self._stage.stage(run, self.rules, leader_epoch=self.leader_epoch, now_ms=now_ms)
        self._ids.settled()
        self._counters.duplicate_messages += len(run.duplicates)
        needed, acks = _needed(outcomes, run.acks, self._log.log_end_offset, self._counters)
        if self._acks.is_served(needed, before, acks):
            run.answer(self._result(outcomes, now_ms))
        else:
            self._acks.published.of(acks).add(needed, run.answer, self._result(outcomes, now_ms))

    def _append_one(self, one: Checked, now_ms: int) -> Appended | LogboomError:
        if isinstance(one, LogboomError):
            return one
        batch = one.batch if isinstance(one, ConditionalBatch) else one
        records, header = batch
        if header.producer_id >= 0:
            self._log.producers.expire(self._settled_clock.now_ms())
        refused = self._refused_producers.before(header, self._log.producers)
        if refused is not None:
            return refused
        try:
            if isinstance(one, ConditionalBatch):
                # First: what a producer sends again must not be compared with its own record.
                repeats = first_copy(self._log.producers, header)
                refusal = self._conditions.refusal(one) if repeats is None else None
                if refusal is not None:
                    return refusal
            appended = self._log.append(records, ((0, header),), leader_epoch=self.leader_epoch, now_ms=now_ms)
        except (OutOfOrderSequenceError, InvalidProducerEpochError) as error:
            return self._refusal_of_sequence(header, error)
        except LogboomError as error:
            return error
        if appended.duplicate:
            self._counters.duplicate_batches += 1
            return appended
        self._refused_producers.caught_up(header.producer_id)
        if isinstance(one, ConditionalBatch):
            self._notes.conditional(one, appended.base_offset, self._log.log_end_offset)
        else:
            self._notes.batches((batch,), appended.base_offset, self._log.log_end_offset)
        return appended

    def _refusal_of_sequence(self, header: BatchHeader, error: LogboomError) -> LogboomError:
        """The answer to a batch whose sequence or epoch is not the next one, which is final for a producer.

        It is not final where another leader may have taken batches that are missing here, or where the batches before
        this one were in flight with it and refused. Then this batch gets the same answer as those, and the producer
        sends all of them again in order.
        """
        is_gap = isinstance(error, OutOfOrderSequenceError)
        before = self._refused_producers.answer(header.producer_id) if is_gap else None
        return self.doubt() or before or error

    def _result(self, outcomes: Sequence[Offset | LogboomError], now_ms: int) -> RunResult:
        time_ms = now_ms if self.rules.stamps_append_time else NO_TIMESTAMP
        return RunResult(outcomes, time_ms, self._log.log_start_offset)

    # --- acks ---------------------------------------------------------------------------------------------------

    def local_end_moved(self, end: Offset) -> None:
        """This broker's own copy is safe below `end`: answer acks=1."""
        self._acks.local_end_moved(end)
        if isinstance(self._held, PublishRun):
            self._ids.written()
        elif self._held is not None:
            self._conditions.written()

    def committed(self, end: Offset) -> None:
        """Everything below `end` is committed: answer acks=-1."""
        self._acks.committed(end)

    def fail_uncommitted(self, error: LogboomError) -> None:
        """Answer all batches that wait for commit: `error` for those that are not committed. Published messages go on
        waiting: they are in the log, and an error would tell their publishers that they are not."""
        self._acks.fail_uncommitted(error)

    def fail_staged(self, error: LogboomError, taken_back: Iterable[FirstSequence] = ()) -> None:
        """What was staged was taken back: answer it with `error`, and later what producers send after it. What lies
        below the end of the log still waits: followers may have it, and it is soon committed."""
        self._refused_producers.note(taken_back, error)
        self._acks.fail_from(self._log.log_end_offset, error)
        # Runs of which a part was taken back wait for less than before, which may be safe by now.
        self.local_end_moved(self.safe_end)
        self.committed(self._acks.committed_end)

    def close(self, error: LogboomError) -> None:
        """Answer everything that waits or is enqueued with `error`, and all later appends too. Messages that are
        already in the log get AppendInDoubtError, unless the stream was deleted."""
        self.refusal = error
        self._conditions.forget()
        self._ids.forget()
        self._refused_producers.clear()
        arrived, self._arrived = self._arrived, []
        held, self._held = self._held, None
        waiting = arrived if held is None else [held, *arrived]
        unstaged = [_untaken(one, error) for one in waiting]
        for run in arrived:
            if not isinstance(run, PublishRun):
                self._refused_producers.note(_first_sequences(run[0]), error)
        staged = self._acks.close(error, None if isinstance(error, UnknownStreamError) else self._log.epochs.at)
        deliver_all([*staged, *self._acks.counted(unstaged, error)])


def _first_sequences(batches: Sequence[object]) -> Iterator[FirstSequence]:
    """The first sequence of each batch of an idempotent producer, as received or checked; anything that is not a batch
    is skipped."""
    for one in batches:
        if isinstance(one, bytearray | memoryview):
            header = read_header(one) if len(one) >= HEADER_BYTES else None
        else:
            batch = one.batch if isinstance(one, ConditionalBatch) else one
            header = batch[1] if isinstance(batch, tuple) else None
        if header is not None and header.producer_id >= 0:
            yield FirstSequence(header.producer_id, header.producer_epoch, header.base_sequence)


def _needed(outcomes: Sequence[Offset | LogboomError], acks: int, end: Offset, counters: Counters) -> tuple[int, int]:
    """Below which offset the log, which ends at `end`, has to be safe before messages are answered, and for which acks.
    What was refused is counted."""
    if isinstance(outcomes, range):
        return outcomes.stop, acks
    if set(map(type, outcomes)) == {int}:
        return max(cast("Sequence[Offset]", outcomes)) + 1, acks
    failed = [one for one in outcomes if isinstance(one, LogboomError)]
    counters.refused_appends += len(failed)
    if any(isinstance(one, TERM_ERRORS) for one in failed):
        # What they were compared with is certain once it is committed: until then another leader may take them.
        return end, ACKS_ALL
    return max([one for one in outcomes if not isinstance(one, LogboomError)], default=-2) + 1, acks


def _checked(run: Sequence[_Arrived], rules: AppendRules, now_ms: int) -> list[Checked]:
    return [rules.check(one, now_ms) if isinstance(one, bytearray | memoryview) else one for one in run]


def _no_doubt() -> None:
    return None


def _with_equal_acks(arrived: Sequence[_Run | PublishRun]) -> list[_Run]:
    """The runs of batches at the head of the queue that ask for the same acks."""
    alike: list[_Run] = []
    for one in arrived:
        if isinstance(one, PublishRun) or (alike and one[1] != alike[0][1]):
            break
        alike.append(one)
    return alike


def _split(runs: Sequence[_Run], result: RunResult) -> None:
    """Give each of the runs that were appended together its part of the result."""
    outcomes, time_ms, start = result
    at, answers = 0, []
    for run, _, done in runs:
        answers.append((done, RunResult(outcomes[at : at + len(run)], time_ms, start)))
        at += len(run)
    deliver_all(answers)


def _untaken(one: _Run | PublishRun | _Held, error: LogboomError) -> tuple[RunDone, RunResult]:
    """The answer to a run that was not staged."""
    if isinstance(one, PublishRun):
        return one.answer, _nothing_taken(one.contents, error)
    if isinstance(one, _Held):
        return one.done, _nothing_taken(one.checked, error)
    return one[2], _nothing_taken(one[0], error)


def _nothing_taken(batches: Sequence[object], error: LogboomError) -> RunResult:
    """The result of a run of which no batch was appended."""
    return refused(RunResult([Offset(-1)] * len(batches), NO_TIMESTAMP, Offset(-1)), error, safe_end=0)
