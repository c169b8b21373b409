"""Which broker, other than this one, has led a partition last: it may hold messages that have not arrived here."""

from collections.abc import Callable

from logboom.base.ids import NO_BROKER, BrokerId, StreamId
from logboom.metadata import Image, Stream
from logboom.metadata.levels import HANDOVER_FROM


class Predecessors:
    """See the module. Knows the streams that it is given, with every change of their assignments."""

    def __init__(self, own: BrokerId, image: Callable[[], Image]) -> None:
        """`image`: the one in force."""
        self._own = own
        self._image = image
        self._last: dict[StreamId, dict[int, BrokerId]] = {}

    def note(self, stream: Stream | None) -> None:
        """Who leads the partitions of a stream, as of some image; None: the stream is not in that image."""
        if stream is None:
            return
        for index, assignment in enumerate(stream.assignments):
            if assignment.leader not in (NO_BROKER, self._own):
                self._last.setdefault(stream.id, {})[index] = assignment.leader

    def forget(self, stream_id: StreamId) -> None:
        """A stream is of no interest any more."""
        self._last.pop(stream_id, None)

    def of(self, stream_id: StreamId, index: int) -> BrokerId | None:
        """The broker that has led a partition last, as long as it counts as alive; one that is shutting down does. None
        at metadata levels at which it may not know the question."""
        image, last = self._image(), self._last.get(stream_id, {}).get(index)
        if last is None or image.level < HANDOVER_FROM:
            return None
        found = image.brokers.get(last)
        return None if found is None or found.fenced else last
