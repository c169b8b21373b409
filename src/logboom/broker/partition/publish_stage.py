"""Staging of published messages: which of them are taken, as which batches, and the offset of each.

Decided one after another, in the order of the log: a message is compared with everything before it, staged or not,
those of its own run included. A refused message is left out, and the others do not notice. On the loop.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from logboom.base.errors import (
    InvalidRecordError,
    LogboomError,
    MessageTooLargeError,
    WrongLastMessageIdError,
    WrongLastOffsetError,
)
from logboom.base.ids import Epoch, Offset
from logboom.broker.partition.append_notes import AppendNotes
from logboom.broker.partition.message_ids import MessageIds
from logboom.broker.partition.publications import PublishRun, Terms
from logboom.broker.partition.validation import AppendRules
from logboom.records import BatchHeader, batch_bytes_max, batch_of, has_key
from logboom.storage import Appended, Batch, LogConfig, Staged


class Log(Protocol):
    """The part of a `storage.PartitionLog` that takes batches."""

    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def config(self) -> LogConfig: ...

    def append(
        self,
        buffer: bytearray | memoryview,
        headers: Sequence[tuple[int, BatchHeader]],
        *,
        leader_epoch: Epoch,
        now_ms: int,
    ) -> Appended: ...

    def append_run(self, run: Sequence[Batch], *, leader_epoch: Epoch, now_ms: int) -> Staged | None: ...


class PublishStage:
    """See the module. Life: that of the partition's append queue."""

    __slots__ = ("_ids", "_log", "_notes")

    def __init__(self, log: Log, ids: MessageIds, notes: AppendNotes) -> None:
        self._log = log
        self._ids = ids
        self._notes = notes

    def stage(
        self, run: PublishRun, rules: AppendRules, *, leader_epoch: Epoch, now_ms: int
    ) -> Sequence[Offset | LogboomError]:
        """Stage what can be taken of a run; for each message its offset, or why it was not taken. A `range` where all
        are taken together."""
        limit = min(rules.limits.max_batch_bytes, self._log.config.segment_bytes)
        fits_one_batch = len(run.contents) <= rules.limits.max_records and batch_bytes_max(run.contents) <= limit
        if fits_one_batch and not run.terms and not rules.needs_keys:
            return self._stage_all(run, rules, leader_epoch=leader_epoch, now_ms=now_ms)
        decisions = _Decisions(run, rules, self._ids, self._log.log_end_offset, limit, fits_one_batch=fits_one_batch)
        outcomes = decisions.outcomes
        failure: LogboomError | None = None
        for part in decisions.parts(limit):
            if failure is None:
                contents = run.contents
                if len(part) < len(contents):
                    contents = [contents[place] for place in part]
                batch = rules.batch_of(contents, run.received_ms, now_ms)
                failure = self._append(batch, _ids_of(run, part), leader_epoch, now_ms)
            if failure is not None:
                # Also of what comes behind it, which was decided with this in the log.
                for place in part:
                    outcomes[place] = failure
        if failure is not None:
            decisions.refuse_duplicates_from(self._log.log_end_offset, failure)
        return outcomes

    def _stage_all(
        self, run: PublishRun, rules: AppendRules, *, leader_epoch: Epoch, now_ms: int
    ) -> Sequence[Offset | LogboomError]:
        """Stage as one batch what is not to be decided about message by message, which is most of what comes."""
        base, count = self._log.log_end_offset, len(run.contents)
        failure = self._append(rules.batch_of(run.contents, run.received_ms, now_ms), (), leader_epoch, now_ms)
        if failure is not None:
            return [failure] * count
        return cast("Sequence[Offset]", range(base, base + count))

    def _append(
        self, batch: Batch, ids: Sequence[tuple[int, bytes]], leader_epoch: Epoch, now_ms: int
    ) -> LogboomError | None:
        """Stage one batch, whose records have these ids by their places; what is wrong, if so."""
        records, header = batch
        base = self._log.log_end_offset
        try:
            if self._log.append_run((batch,), leader_epoch=leader_epoch, now_ms=now_ms) is None:
                self._log.append(records, ((0, header),), leader_epoch=leader_epoch, now_ms=now_ms)
        except LogboomError as error:
            return error
        self._notes.messages(batch, base, [(base + at, message_id) for at, message_id in ids])
        return None


class _Decisions:
    """What is taken of one run, decided as if all that is taken were in the log already."""

    def __init__(
        self,
        run: PublishRun,
        rules: AppendRules,
        ids: MessageIds,
        end: Offset,
        limit: int,
        *,
        fits_one_batch: bool,
    ) -> None:
        """`limit`: the largest batch there can be."""
        self.outcomes: list[Offset | LogboomError] = []
        self._run = run
        self._ids = ids
        self._records_max = rules.limits.max_records
        self._fits_one_batch = fits_one_batch
        taken: list[int] = []
        new_ids: dict[bytes, Offset] = {}
        last_id = ids.last_id
        for place, content in enumerate(run.contents):
            terms = run.terms.get(place)
            first = None if terms is None else self._known(terms, new_ids)
            if first is not None:
                run.duplicates.add(place)
                self.outcomes.append(first)
                continue
            at = Offset(end + len(taken))
            fault = _fault_of(content, rules, limit)
            if fault is None and terms is not None:
                fault = self._terms_fault(terms, at, last_id)
            if fault is not None:
                self.outcomes.append(fault)
                continue
            taken.append(place)
            self.outcomes.append(at)
            last_id = None if terms is None else terms.message_id
            if last_id is not None:
                new_ids[last_id] = at
        self._taken: Sequence[int] = taken

    def _known(self, terms: Terms, new_ids: dict[bytes, Offset]) -> Offset | None:
        """Where a message is already, if it is."""
        message_id = terms.message_id
        if message_id is None or not self._ids.deduplicates:
            return None
        return new_ids[message_id] if message_id in new_ids else self._ids.find(message_id)

    def _terms_fault(self, terms: Terms, at: Offset, last_id: bytes | None) -> LogboomError | None:
        if self._ids.failure is not None and (terms.message_id is not None or terms.expected_last_id is not None):
            return self._ids.failure
        if terms.expected_end is not None and terms.expected_end != at:
            return WrongLastOffsetError(at, terms.expected_end)
        if terms.expected_last_id is not None and terms.expected_last_id != last_id:
            return WrongLastMessageIdError(last_id, terms.expected_last_id)
        return None

    def parts(self, limit: int) -> Iterator[Sequence[int]]:
        """The places of what is taken, cut into batches."""
        if self._fits_one_batch:
            if self._taken:
                yield self._taken
            return
        contents, part, size_bytes = self._run.contents, list[int](), batch_bytes_max(())
        for place in self._taken:
            more_bytes = batch_bytes_max((contents[place],)) - batch_bytes_max(())
            if part and (size_bytes + more_bytes > limit or len(part) == self._records_max):
                yield part
                part, size_bytes = [], batch_bytes_max(())
            part.append(place)
            size_bytes += more_bytes
        if part:
            yield part

    def refuse_duplicates_from(self, end: Offset, failure: LogboomError) -> None:
        """The log ends here, other than was decided with: what repeats a message from there on is not in it either."""
        for place in tuple(self._run.duplicates):
            outcome = self.outcomes[place]
            if not isinstance(outcome, LogboomError) and outcome >= end:
                self.outcomes[place] = failure
                self._run.duplicates.discard(place)


def _ids_of(run: PublishRun, part: Sequence[int]) -> list[tuple[int, bytes]]:
    """The ids of the messages of one batch, by their places in it."""
    if not run.terms:
        return []
    named = ((at, run.terms[place].message_id) for at, place in enumerate(part) if place in run.terms)
    return [(at, message_id) for at, message_id in named if message_id is not None]


def _fault_of(content: bytes, rules: AppendRules, limit: int) -> LogboomError | None:
    """Why a record of this content cannot be in the stream, whatever else is in it."""
    if rules.needs_keys and not has_key(content):
        return InvalidRecordError("The record has no key, and a stream with cleanup.policy=compact needs one.")
    if batch_bytes_max((content,)) > limit and (size_bytes := len(batch_of((content,), 0))) > limit:
        return MessageTooLargeError(
            f"A message takes {size_bytes} bytes as a record batch, above the limit of {limit}.",
            limit="max.message.bytes",
        )
    return None
