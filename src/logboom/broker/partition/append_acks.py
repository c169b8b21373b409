"""Appends that are staged, until their acks are answered: once this broker's copy is safe (acks=1), or once they are
committed (acks=-1).

Knows offsets and callbacks; not how anything is staged, nor what commits an offset. On the loop only.
"""

from collections.abc import Callable
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.ids import Epoch, Offset
from logboom.broker.metrics import Counters
from logboom.broker.partition.publications import ACKS_ALL, PublishWaiters
from logboom.broker.partition.waiters import AckWaiters, RunDone, RunResult, deliver_all

_ACKS_LEADER: Final = 1


class AppendAcks:
    """See the module. Life: that of the append queue."""

    __slots__ = ("_at_commit", "_at_leader", "_counters", "_safe_end", "committed_end", "published")

    def __init__(self, safe_end: Callable[[], Offset], counters: Counters) -> None:
        """`safe_end`: the offset below which this broker's own copy is as safe as the stream asks for."""
        self.committed_end = Offset(0)
        """Everything below it is committed."""
        self.published = PublishWaiters()
        """Messages that were published without a batch."""
        self._at_commit = AckWaiters()
        self._at_leader = AckWaiters()
        self._safe_end = safe_end
        self._counters = counters

    def of(self, acks: int) -> AckWaiters:
        """The client batches that wait for these acks, which are not 0."""
        return self._at_commit if acks == ACKS_ALL else self._at_leader

    def is_served(self, needed: int, before: int, acks: int) -> bool:
        """Whether a run that is safe once everything below `needed` is can be answered now. `before`: the end of the
        log when it came."""
        # Where all are duplicates, the batches they repeat may have been safe for long, and no flush is to come.
        if acks == 0 or needed < 0:
            return True
        return needed <= before and needed <= (self.committed_end if acks == ACKS_ALL else self._safe_end())

    def local_end_moved(self, end: Offset) -> None:
        """This broker's own copy is safe below `end`: answer acks=1."""
        self._at_leader.answer(end)
        self.published.of(_ACKS_LEADER).answer(end)

    def committed(self, end: Offset) -> None:
        """Everything below `end` is committed: answer acks=-1."""
        self.committed_end = end
        self._at_commit.answer(end)
        self.published.of(ACKS_ALL).answer(end)

    def fail_uncommitted(self, error: LogboomError) -> None:
        """Answer all batches that wait for commit: `error` for those that are not committed. Published messages go on
        waiting: they are in the log, and an error would tell their publishers that they are not."""
        deliver_all(self.counted(self._at_commit.refuse(error, safe_end=self.committed_end), error))

    def fail_from(self, end: Offset, error: LogboomError) -> None:
        """The log ends at `end` again: answer what was staged above it with `error`. What lies below still waits."""
        staged = [*self._at_commit.refuse_from(end, error), *self._at_leader.refuse_from(end, error)]
        deliver_all(self.counted([*staged, *self.published.refuse_from(end, error)], error))

    def close(self, error: LogboomError, epoch_of: Callable[[Offset], Epoch] | None) -> list[tuple[RunDone, RunResult]]:
        """Remove all; their answers, `error` for what is not as safe as was asked for. Of such messages it is not known
        whether the next leader has them, by the epochs of the log; without `epoch_of` no leader will have them."""
        committed, safe_end = self.committed_end, self._safe_end()
        if epoch_of is None:
            gone = self.published.deleted(error, committed=committed, safe_end=safe_end)
            published = self.counted(gone, error)
        else:
            published = self.published.doubt(epoch_of, committed=committed, safe_end=safe_end)
        at_commit = self._at_commit.refuse(error, safe_end=committed)
        at_leader = self._at_leader.refuse(error, safe_end=safe_end)
        return [*self.counted([*at_commit, *at_leader], error), *published]

    def counted(self, answers: list[tuple[RunDone, RunResult]], error: LogboomError) -> list[tuple[RunDone, RunResult]]:
        """The same answers, whose errors are counted."""
        self._counters.refused_appends += sum(outcome is error for _, result in answers for outcome in result.outcomes)
        return answers
