"""Where the logs of followers begin, as a leader knows it: records are deleted once all of the ISR have deleted them
(KIP-107)."""

from collections.abc import Iterable
from typing import Final

from logboom.base.ids import BrokerId, Offset

FIRST_OFFSET: Final = Offset(0)


class LogStarts:
    """See the module. Life: that of a leadership."""

    __slots__ = ("_starts",)

    def __init__(self) -> None:
        self._starts: dict[BrokerId, Offset] = {}

    def reported(self, replica: BrokerId, log_start: Offset) -> bool:
        """A follower says where its log begins. Returns whether it has deleted something since it last did."""
        if log_start <= self._starts.setdefault(replica, FIRST_OFFSET):
            return False
        self._starts[replica] = log_start
        return True

    def of(self, replica: BrokerId) -> Offset:
        """The first offset of a follower's log, as far as known."""
        return self._starts.get(replica, FIRST_OFFSET)

    def have_reached(self, offset: Offset, followers: Iterable[BrokerId]) -> bool:
        """Whether none of these followers has records below `offset`."""
        return all(self.of(one) >= offset for one in followers)

    def any_below(self, offset: Offset, replicas: Iterable[BrokerId]) -> bool:
        """Whether one of these replicas has said that it has records below `offset`."""
        return any(self._starts[one] < offset for one in replicas if one in self._starts)

    def forget(self, replica: BrokerId) -> None:
        """It may have another log by now."""
        self._starts.pop(replica, None)
