"""Messages on their way into one partition together, from their arrival until their outcome is known. Pure."""

from collections.abc import Sequence

from logboom.broker.partition.publications import Terms
from logboom.nats.ingress.holding import MESSAGE_BYTES, HeldMessages, Unstored
from logboom.nats.link.frames import Delivery
from logboom.nats.wire.envelope import Sealed
from logboom.nats.wire.messages import Message
from logboom.records import contents_bytes


class InflightRun:
    """Messages in the form in which they came, their records, and their reply subjects, at the same index in all
    three."""

    __slots__ = ("acks", "by_all", "contents", "holding", "messages", "replies", "sealed", "size_bytes", "terms")

    def __init__(
        self,
        holding: HeldMessages,
        acks: int,
        by_all: bool,
        messages: Sequence[Delivery],
        contents: Sequence[bytes],
        replies: Sequence[bytes],
    ) -> None:
        """`by_all`: whether the server gave them to all who subscribe."""
        self.holding = holding
        self.acks = acks
        self.by_all = by_all
        self.messages = messages
        self.contents = contents
        self.replies = replies
        self.terms: dict[int, Terms] = {}
        self.sealed: dict[int, Sealed] = {}
        """Those that came in envelopes, by their places: they are answered in another way."""
        self.size_bytes = 0
        """The memory that they take, once they are published."""

    def weigh(self) -> int:
        """Compute the memory that they take from now on."""
        # Twice, as it came and as it is stored: what the next leader has to store gets there as it came.
        self.size_bytes = 2 * contents_bytes(self.contents) + MESSAGE_BYTES * len(self.contents)
        return self.size_bytes

    def unstored(self, place: int) -> Unstored:
        """A message as it came."""
        return Unstored(self.messages[place], self.by_all)


class MixedRun(InflightRun):
    """A run that is put together message by message."""

    __slots__ = ("_contents", "_messages", "_replies")

    def __init__(self, holding: HeldMessages, acks: int, by_all: bool) -> None:
        self._messages: list[Delivery] = []
        self._contents: list[bytes] = []
        self._replies: list[bytes] = []
        super().__init__(holding, acks, by_all, self._messages, self._contents, self._replies)

    def add(self, message: Delivery, read: Message, sealed: Sealed | None) -> None:
        """One message more."""
        place = len(self._contents)
        if read.terms is not None:
            self.terms[place] = read.terms
        if sealed is not None:
            self.sealed[place] = sealed
        self._messages.append(message)
        self._contents.append(read.content)
        self._replies.append(read.reply)
