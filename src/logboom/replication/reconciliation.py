"""Where two logs of one partition diverge: the only reason for which a replica ever truncates (KIP-101, KIP-279,
KIP-595).

A fetch names the follower's end and the leader epoch of its last batch. The leader compares both with its own history
of epochs. If they do not match it answers with the largest epoch that both may have and where that epoch ends. The
follower truncates its log there, or earlier if its own batches of that epoch end earlier, and asks again. Each round
removes at least one epoch that the leader does not have, so it terminates. The high-water mark plays no part: a
follower's mark may lag behind what is committed, so truncating to it would lose records.
"""

from typing import NamedTuple, Protocol

from logboom.base.errors import UnknownLeaderEpochError
from logboom.base.ids import NO_EPOCH, Epoch, Offset


class EpochEnd(NamedTuple):
    """An epoch, and the offset at which it ends in a log."""

    epoch: Epoch
    end_offset: Offset


class Epochs(Protocol):
    """The history of epochs of a log: `storage.PartitionLog.epochs`."""

    @property
    def latest(self) -> Epoch:
        """The epoch of the last batch, or that of a leadership that has written nothing yet."""

    def end_of(self, epoch: Epoch, log_end: Offset) -> tuple[Epoch, Offset]:
        """The largest epoch up to `epoch` and where it ends; (-1, -1) where `epoch` is newer than all."""


def divergence(epochs: Epochs, log_end: Offset, *, last_epoch: Epoch, fetch_offset: Offset) -> EpochEnd | None:
    """On the leader: where a follower's log diverges from this one; None if everything below `fetch_offset` is the
    same.

    `last_epoch` is that of the follower's last batch, NO_EPOCH for an empty log. Raises UnknownLeaderEpochError for an
    epoch that is newer than this leadership: then this broker is no longer the leader and does not know it yet.
    """
    if last_epoch == NO_EPOCH:
        return None
    if last_epoch > epochs.latest:
        raise UnknownLeaderEpochError(
            f"a replica has batches of epoch {last_epoch}, this leadership is {epochs.latest}"
        )
    epoch, end = epochs.end_of(last_epoch, log_end)
    if epoch == last_epoch and fetch_offset <= end:
        return None
    return EpochEnd(epoch, end)


def truncation_point(epochs: Epochs, log_end: Offset, diverging: EpochEnd) -> Offset:
    """On the follower: where to truncate after the leader's answer."""
    _, own_end = epochs.end_of(diverging.epoch, log_end)
    if own_end < 0:  # every epoch of this log is older: all of it may be the leader's
        own_end = log_end
    return min(own_end, diverging.end_offset)
