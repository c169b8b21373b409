"""What a connection may do now: a state machine without sockets.

A connection is in one phase:

    OPEN         the socket is read, requests begin, replies are sent
    REFUSED      it came faster than its address may connect. It holds its place among the connections for a while,
                 without being read, and is then closed: a client that comes too fast must not gain from a quick refusal
    HALF_CLOSED  the peer has shut down its side. What it has sent is still answered, as by Kafka; then it is closed
    STOPPING     the server stops. Requests that have begun are answered, no other begins; then it is closed
    CLOSED       nothing is read, begun or sent any more. The transport may still flush what was written

`TRANSITIONS` lists every event that may come in a phase. An event that is not listed there is a programming error.

Within its phase a connection may be paused, and is not read then:

    UNREAD_REPLIES   the peer does not read its replies      ends when asyncio says that the write buffer has drained
    THROTTLED        a quota was exceeded (KIP-219)          ends with the throttle's timer, or when quotas change
    APPEND_CAPACITY  the next request has records, and too   ends when the broker's append queues have capacity again
                     many bytes wait for the disk already
    SERVER_MEMORY    requests of all connections together    ends when any request of the server is answered
                     take what they may
    BACKLOG          requests have arrived that have not     ends when they have begun
                     begun, for one of the reasons above, for
                     the limits of one connection, or because
                     an earlier one changes what they read

Beside these, a socket of which much was read is left alone until the next turn of the loop (`connection.io_cycle`).

A socket that is not read fills up, and TCP slows the peer down: that is how every one of these limits reaches the
client. The first two are set by events and hold back every request. The others are found again in each turn of the
connection (`connection.io_cycle`), because they depend on the next request and on all other connections.
"""

from enum import Enum, auto
from typing import Final


class Phase(Enum):
    """See the module."""

    OPEN = auto()
    REFUSED = auto()
    HALF_CLOSED = auto()
    STOPPING = auto()
    CLOSED = auto()


class Event(Enum):
    """What changes the phase."""

    REFUSE = auto()
    """The address connects faster than its quota allows."""
    PEER_FINISHED = auto()
    """The peer has shut down its side (FIN) and is owed replies."""
    SERVER_STOPS = auto()
    """The server begins no more requests."""
    CLOSE = auto()
    """Either side closes the connection, in order or for an error."""


TRANSITIONS: Final = {
    (Phase.OPEN, Event.REFUSE): Phase.REFUSED,
    (Phase.OPEN, Event.PEER_FINISHED): Phase.HALF_CLOSED,
    (Phase.STOPPING, Event.PEER_FINISHED): Phase.STOPPING,
    (Phase.OPEN, Event.SERVER_STOPS): Phase.STOPPING,
    (Phase.REFUSED, Event.SERVER_STOPS): Phase.STOPPING,
    (Phase.HALF_CLOSED, Event.SERVER_STOPS): Phase.STOPPING,
    (Phase.STOPPING, Event.SERVER_STOPS): Phase.STOPPING,
    (Phase.CLOSED, Event.SERVER_STOPS): Phase.CLOSED,
    **{(phase, Event.CLOSE): Phase.CLOSED for phase in Phase},
}


class Pause(Enum):
    """Why a connection waits, in the order in which a reason is reported."""

    APPEND_CAPACITY = auto()
    UNREAD_REPLIES = auto()
    THROTTLED = auto()
    SERVER_MEMORY = auto()
    BACKLOG = auto()


class ConnectionState:
    """One connection's phase and pauses.

    The three attributes that each turn asks for are kept up to date by the events, which are rare.
    """

    __slots__ = ("_peer_reads", "_throttled", "begins", "closed", "phase", "reads", "waits_for")

    def __init__(self) -> None:
        self.phase = Phase.OPEN
        self._peer_reads = True
        self._throttled = False
        self.waits_for: Pause | None = None
        """What the next request, or the socket, waits for, as of the last turn."""
        self.closed = False
        """Whether the phase is CLOSED."""
        self.begins = True
        """Whether a request may begin, as far as phase, peer and quotas are concerned."""
        self.reads = True
        """Whether the socket is to be read."""

    def handle(self, event: Event) -> None:
        """Change the phase. Events that cannot come in a phase are programming errors."""
        assert (self.phase, event) in TRANSITIONS, f"{event.name} in phase {self.phase.name}"
        self.phase = TRANSITIONS[self.phase, event]
        self._update()

    def set_peer_reads(self, peer_reads: bool) -> None:
        """Whether the peer reads its replies."""
        self._peer_reads = peer_reads
        self._update()

    def set_throttled(self, throttled: bool) -> None:
        """Whether a quota makes the connection wait."""
        self._throttled = throttled
        self._update()

    def set_waits_for(self, pause: Pause | None) -> None:
        """What a turn has found: APPEND_CAPACITY, SERVER_MEMORY, BACKLOG or nothing."""
        self.waits_for = pause
        self._update()

    def _update(self) -> None:
        self.closed = self.phase is Phase.CLOSED
        free = self._peer_reads and not self._throttled
        self.begins = free and self.phase in (Phase.OPEN, Phase.HALF_CLOSED)
        self.reads = free and self.phase is Phase.OPEN and self.waits_for is None

    @property
    def peer_reads(self) -> bool:
        """Whether the peer reads its replies."""
        return self._peer_reads

    @property
    def pause(self) -> Pause | None:
        """The reason to report for not reading an open connection's socket; None where it is read."""
        if self.waits_for is Pause.APPEND_CAPACITY:
            return self.waits_for
        if not self._peer_reads:
            return Pause.UNREAD_REPLIES
        return Pause.THROTTLED if self._throttled else self.waits_for
