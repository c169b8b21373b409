"""The port to the other brokers of the cluster: frames out, frames in. `peer.PeerServer` implements it.

A frame has a kind, which says what its bytes are; what they mean is known to the room that serves the kind. Most kinds
are requests, which are answered or fail; those of `ONE_WAY` are not answered and may be lost at any time. Frames of one
lane arrive in the order in which they were sent, as long as the connection lasts; nothing is known about the order of
frames of two lanes, so that a megabyte of records never delays a heartbeat. A body has at most `BODY_BYTES_MAX` bytes.

Whoever sends is authenticated: a handler is told which broker it is, and with which data directory.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId, DirectoryId
from logboom.base.ports import Bytes
from logboom.base.units import MIB


class FrameKind(IntEnum):
    """What the bytes of a frame are."""

    RAFT = 1
    """A message of the consensus group (`raft.encode_message`)."""
    CONTROL = 2
    """A command for the controller, and its result (`broker.control`)."""
    FETCH = 3
    """A follower asks a leader for records (`broker.replication`)."""
    DURABLE_END = 4
    """A follower reports to a leader how far its logs are synced."""
    LOG_ENDS = 5
    """The controller asks how far the logs of replicas go (`broker.log_ends`)."""
    SNAPSHOT = 6
    """A message of the consensus group that holds a snapshot, of up to 64 MiB: beside the others, whose heartbeats and
    leases cannot wait for this many bytes."""
    HANDOVER = 7
    """A leader asks the one before it for messages that this one could not store (`nats.ingress.handover`)."""
    ADVISORIES = 8
    """A broker has advisories for the leader of their stream to append (`broker.advisories`)."""


class Lane(IntEnum):
    """Frames that share one connection, and so one order."""

    CONTROL = 1
    RECORDS = 2


BODY_BYTES_MAX: Final = 65 * MIB
"""A snapshot of the metadata, or records, of 64 MiB, and their headers."""

ONE_WAY: Final = frozenset({FrameKind.RAFT, FrameKind.SNAPSHOT, FrameKind.DURABLE_END})
LANES: Final = {
    FrameKind.RAFT: Lane.CONTROL,
    FrameKind.CONTROL: Lane.CONTROL,
    FrameKind.FETCH: Lane.RECORDS,
    FrameKind.DURABLE_END: Lane.RECORDS,
    FrameKind.LOG_ENDS: Lane.CONTROL,
    FrameKind.SNAPSHOT: Lane.RECORDS,
    FrameKind.HANDOVER: Lane.RECORDS,
    FrameKind.ADVISORIES: Lane.RECORDS,
}


GENERATION_MARK: Final = "#"
"""Separates the id of a cluster from its generation; no id made by Logboom or Kafka contains it."""


class Address(NamedTuple):
    """Where a broker listens for others."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """The broker at the other end, as authenticated by the handshake."""

    broker_id: BrokerId
    directory_id: DirectoryId
    cluster_id: str = ""
    """With its generation, unless that is the first; empty if it belongs to no cluster yet."""


class PeerUnavailableError(LogboomError):
    """No answer came: there is no connection, it broke, or the time was over. It is unknown whether the other broker
    has acted (NETWORK_EXCEPTION)."""


class PeerRefusedError(PeerUnavailableError):
    """The other broker was reached, and one of the two refuses the other permanently: another key, another cluster, an
    unknown version, or no broker at all. Waiting does not help; the text says what does."""


RequestHandler: TypeAlias = Callable[[PeerIdentity, memoryview], Awaitable[Sequence[Bytes]]]
"""Answers a request: the body in, the answer's buffers out. A LogboomError that it raises is raised at the caller, with
its class, text and fields.

The first buffer of a long answer in lane RECORDS holds everything that decides something, the others hold records: only
the first is certain to be protected against changes on the way.
"""

PartHandler: TypeAlias = Callable[[memoryview], None]
"""Takes a part of an answer, before the answer itself."""

SendPart: TypeAlias = Callable[[Sequence[Bytes]], None]
"""Sends a part of an answer before the answer itself. What is sent waits in memory if the other side does not read it;
the sender has to bound that."""

PartsRequestHandler: TypeAlias = Callable[[PeerIdentity, memoryview, SendPart], Awaitable[Sequence[Bytes]]]
"""As `RequestHandler`; may send parts until it has answered, to a caller that takes them."""

PostHandler: TypeAlias = Callable[[PeerIdentity, memoryview], None]
"""Takes a frame that is not answered. Bodies of both kinds may be kept, and are the handler's to change."""


class Peers(Protocol):
    """See the module. Everything is called on the broker's loop, and handlers run on it."""

    @property
    def address(self) -> Address | None:
        """Where other brokers are to connect to this one; None where they cannot."""

    def identify(self, identity: PeerIdentity) -> None:
        """Set this broker's identity. Until then requests in both directions wait.

        Called again with the cluster's id once a broker that had none has learned it; connections are made again then.
        """

    def know_processes(self, registered: Callable[[PeerIdentity], str], check_noted: Callable[[str], None]) -> None:
        """Set what is compared with each other broker before anything else is exchanged, from before `identify` on.

        `registered`: the process of a broker with this data directory that was registered last, empty if none is known.
        `check_noted` gets what another broker knows in the same way of this one; it raises if this broker's data
        directory has not noted that process, and the other broker is refused then.
        """

    def serve(self, kind: FrameKind, handler: RequestHandler) -> None:
        """Answer requests of a kind with `handler`. Before that, they wait for it as long as their caller does."""

    def serve_in_parts(self, kind: FrameKind, handler: PartsRequestHandler) -> None:
        """As `serve`, with answers that may come in parts."""

    def serve_posts(self, kind: FrameKind, handler: PostHandler) -> None:
        """Give frames of a kind in `ONE_WAY` to `handler`. Before that, they are dropped."""

    def locate(self, addresses: Mapping[BrokerId, Address]) -> None:
        """Set where brokers listen; those not named keep their known addresses. Connections are made when there is
        something to send."""

    def lost_for_s(self, to: BrokerId) -> float | None:
        """How long ago the last connection to a broker broke without being closed by this one; None if there is a
        connection or never was one."""

    def post(self, to: BrokerId, kind: FrameKind, body: Sequence[Bytes]) -> bool:
        """Send a frame that is not answered. False where it was dropped at once: no address, no connection, or too much
        waits to be sent; a connection is then tried in the background. The buffers must not change afterwards."""

    async def call(
        self,
        to: BrokerId,
        kind: FrameKind,
        body: Sequence[Bytes],
        *,
        timeout_s: float,
        on_part: PartHandler | None = None,
    ) -> memoryview:
        """Send a request and wait for its answer. Raises PeerUnavailableError, or what the handler raised; and
        InvalidRequestError where the body is too long. The buffers must not change afterwards.

        `on_part` is given parts of the answer, as they come and in their order; none comes once this has returned."""

    async def call_address(
        self, address: Address, kind: FrameKind, body: Sequence[Bytes], *, timeout_s: float
    ) -> tuple[PeerIdentity, memoryview]:
        """As `call`, to a broker of which only an address is known; returns its identity and the answer."""


class NoPeers:
    """The peers of a broker that runs alone: none."""

    address: Address | None = None

    def identify(self, identity: PeerIdentity) -> None:
        """There is no other broker."""

    def know_processes(self, registered: Callable[[PeerIdentity], str], check_noted: Callable[[str], None]) -> None:
        """There is no other broker."""

    def serve(self, kind: FrameKind, handler: RequestHandler) -> None:
        """There is no other broker that could send a request."""

    def serve_in_parts(self, kind: FrameKind, handler: PartsRequestHandler) -> None:
        """There is no other broker that could send a request."""

    def serve_posts(self, kind: FrameKind, handler: PostHandler) -> None:
        """There is no other broker that could send a message."""

    def locate(self, addresses: Mapping[BrokerId, Address]) -> None:
        """There is no other broker."""

    def lost_for_s(self, to: BrokerId) -> float | None:
        """There never was a connection."""
        return None

    def post(self, to: BrokerId, kind: FrameKind, body: Sequence[Bytes]) -> bool:
        """There is no connection."""
        return False

    async def call(
        self,
        to: BrokerId,
        kind: FrameKind,
        body: Sequence[Bytes],
        *,
        timeout_s: float,
        on_part: PartHandler | None = None,
    ) -> memoryview:
        """There is no connection."""
        raise PeerUnavailableError(f"this broker does not speak to broker {to}: peer.listen is not set")

    async def call_address(
        self, address: Address, kind: FrameKind, body: Sequence[Bytes], *, timeout_s: float
    ) -> tuple[PeerIdentity, memoryview]:
        """There is no connection."""
        raise PeerUnavailableError(
            f"this broker speaks to no other, such as {address.host}:{address.port}: peer.listen is not set"
        )
