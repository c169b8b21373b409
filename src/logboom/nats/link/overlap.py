"""Merges what two connections deliver for the same subscriptions while both are up: each message once. Pure.

    the old one    |- received by it alone ----|------------ received by both ----------|
    the new one                                |------------ received by both ----------|---- received by it alone -

Messages of the old connection are passed on as they come. Messages of the new one are kept, without those that the old
one has delivered too, until the old one delivers nothing more; what is left then was received by the new one alone.
Servers number nothing, so messages are compared by their bytes, and equal ones are counted.

What this broker publishes on the old connection comes back only on the new one, since a server does not send a
connection its own messages (`echo`). It is left out as often as it was published; equal messages of others come on
both connections.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from logboom.nats.link.commands import messages_of
from logboom.nats.link.frames import Delivery

_MESSAGE_BYTES: Final = 400
"""What a message takes that is kept, beside its bytes."""


class Overlap:
    """See the module."""

    def __init__(self) -> None:
        self._heard = (Counter[Delivery](), Counter[Delivery]())
        """Messages of the old connection that the new one has not brought yet: those of before `mark`, the others."""
        self.is_marked = False
        """Whether both connections deliver what is published."""
        self._is_forgotten = False
        self._guessed = Counter[Delivery]()
        """Messages of the new connection, since the mark, that were taken for such as the old one had brought before it
        and the new one had not. As many as were remembered at the mark, at most."""
        self._kept: dict[int, Delivery] = {}
        """Messages of the new connection that the old one has not brought, by the order in which they came."""
        self._places: dict[Delivery, deque[int]] = {}
        self._next_place = 0
        self._said = Counter[tuple[bytes, ...]]()
        self._come_back = Counter[Delivery]()
        """How many of the new connection's messages were taken for what was said here."""
        self.size_bytes = 0
        """The memory of what is kept, or remembered."""

    def say(self, said: bytes) -> None:
        """This broker publishes this on the old connection, as `commands` has encoded it."""
        self._said.update(messages_of(said))
        self.size_bytes += len(said) + _MESSAGE_BYTES * said.count(b"\r\n")

    def of_others(self, messages: Iterable[Delivery]) -> list[Delivery]:
        """The new connection's messages of a queue group without those that this broker published. An equal message
        that the server gave to another member counts for one of others."""
        return [message for message in messages if not self._was_said(message)]

    def _was_said(self, message: Delivery) -> bool:
        """Whether a message is what was said here, and has not come back yet."""
        if message[1:] not in self._said or self._come_back[message] == self._said[message[1:]]:
            return False
        if message not in self._come_back:
            self.size_bytes += _size_bytes(message)
        self._come_back[message] += 1
        return True

    def old(self, messages: Iterable[Delivery]) -> None:
        """The old connection has delivered these."""
        heard = self._heard[self.is_marked]
        for message in messages:
            places = self._places.get(message)
            if places is None:
                if self._come_back.get(message):
                    self._come_back[message] -= 1  # that was this one: what was said here is still to come
                    continue
                if self._was_guessed(message):
                    if self._is_forgotten:
                        continue
                    self._heard[0][message] += 1
                else:
                    heard[message] += 1
                self.size_bytes += _size_bytes(message)
                continue
            del self._kept[places.popleft()]
            self.size_bytes -= _size_bytes(message)
            if not places:
                del self._places[message]

    def _was_guessed(self, message: Delivery) -> bool:
        """Whether the new connection has brought an equal message that was taken for an earlier one. Then that may have
        been this one, the new connection being ahead; if it was not, one of two equal messages is passed on twice. To
        count this one as well would be to lose the next one."""
        if not self._guessed.get(message):
            return False
        self._guessed[message] -= 1
        return True

    def new(self, messages: Iterable[Delivery]) -> None:
        """The new connection has delivered these."""
        for message in messages:
            # The later ones first: of equal ones from before the mark some may be those that this one has not heard.
            heard = next((one for one in reversed(self._heard) if message in one), None)
            if heard is None:
                if self._was_said(message):
                    continue
                self._kept[self._next_place] = message
                self._places.setdefault(message, deque()).append(self._next_place)
                self._next_place += 1
                self.size_bytes += _size_bytes(message)
                continue
            if self.is_marked and heard is self._heard[0]:
                self._guessed[message] += 1
            self.size_bytes -= _size_bytes(message)
            heard[message] -= 1
            if not heard[message]:
                del heard[message]

    def mark(self) -> None:
        """Both connections deliver what is published from now on."""
        self.is_marked = True

    def forget_before_mark(self) -> None:
        """The new connection will deliver no more of the messages that the old one delivered before the mark: an equal
        message that it delivers later is another one."""
        self._is_forgotten = True
        before = self._heard[0]
        self.size_bytes -= sum(_size_bytes(message) * count for message, count in before.items())
        before.clear()

    def left(self) -> list[Delivery]:
        """What only the new connection has delivered, in its order."""
        return list(self._kept.values())


def _size_bytes(message: Delivery) -> int:
    _, subject, reply, header, payload = message
    return len(subject) + len(reply) + len(header) + len(payload) + _MESSAGE_BYTES
