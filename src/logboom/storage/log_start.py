"""Where a log begins, and whether what is below is known to have been deleted.

The checkpoint says both. If it is lost and the first segment begins above offset 0, the segments before it may have
been deleted or lost. Such a log goes on from its first segment, but it must not make other replicas delete what they
have below.
"""

from typing import Final

from logboom.base.ids import Offset
from logboom.storage.state import LogState

_FIRST: Final = Offset(0)


class LogStart:
    """See the module. Life: that of the log. For any thread."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    @property
    def is_known(self) -> bool:
        """Whether all records below the log start were deleted; else they may be lost."""
        return self._state.start_is_known

    @property
    def deleted_below(self) -> Offset:
        """Below it all records are known to have been deleted: the log start, or 0 if they may be lost."""
        return self._state.log_start_offset if self._state.start_is_known else _FIRST

    def report_lost(self, why: str) -> None:
        """Report that records below the log start are lost here."""
        self._state.report_unknown_start(why)
