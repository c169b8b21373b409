"""What a handler returns in place of a response entity: a response that comes later, or none at all.

Knows no connection and no handler; both sides of a reply import it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Failed:
    """A handler raised after it had returned: the connection is closed and the error logged."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is closed: the only way to report an error for a request without a response (acks=0)."""

    reason: str


class DeferredReply:
    """A reply that is set later: a future with one listener that is called at once, not on the loop's next turn.

    A handler makes it and returns it to the connection, which listens; the broker's completion sets it, on the event
    loop, before or after. It is dropped once the reply was delivered or the connection was closed.
    """

    __slots__ = ("_is_set", "_listener", "_reply", "expires_at_s", "on_abandoned", "on_expired")

    def __init__(self) -> None:
        self._listener: Callable[[Any], None] | None = None
        self._reply: Any = None
        self._is_set = False
        self.expires_at_s = float("inf")
        """Monotonic time, in seconds, from which `on_expired` is called, within about a second, unless the reply is
        set."""
        self.on_expired: Callable[[], None] | None = None
        self.on_abandoned: Callable[[], None] | None = None
        """Called when the connection closes before the reply is set."""

    @property
    def is_set(self) -> bool:
        """Whether the reply was set."""
        return self._is_set

    def set(self, reply: Any) -> None:
        """Deliver the reply, once."""
        assert not self._is_set, "a reply is set once"
        self._is_set = True
        # The callbacks refer to the handler's object, and that refers to this one. Without cutting the cycle here, the
        # records of a response would stay in memory until a garbage collection.
        self.on_expired = self.on_abandoned = None
        listener, self._listener = self._listener, None
        if listener is None:
            self._reply = reply
        else:
            listener(reply)

    def fail(self, error: BaseException) -> None:
        """Report a programming error in place of a reply: the connection is closed."""
        self.set(Failed(error))

    def listen(self, listener: Callable[[Any], None]) -> None:
        """Call `listener` with the reply; at once if it is set already."""
        if self._is_set:
            listener(self._reply)
        else:
            self._listener = listener
