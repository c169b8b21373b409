"""Brokers of one process that speak to each other in memory, for tests: `broker.peers` without sockets.

A frame arrives in a later turn of the loop. Links can be cut in one direction; what is sent then is lost, and requests
fail when their time is over, as those on a real network do.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from logboom.base.ids import BrokerId, DirectoryId
from logboom.base.ports import Bytes
from logboom.broker.peers import (
    Address,
    FrameKind,
    PartHandler,
    PartsRequestHandler,
    PeerIdentity,
    PeerUnavailableError,
    PostHandler,
    RequestHandler,
)


class MemoryNetwork:
    """All brokers of a test. Life: that of the test."""

    def __init__(self) -> None:
        self.members: dict[BrokerId, MemoryPeers] = {}
        self.cuts: set[tuple[BrokerId, BrokerId]] = set()
        """Directed links, sender first, on which everything is lost."""
        self.lost_posts: set[FrameKind] = set()
        """Kinds of frames without an answer that are all lost, as some are when a connection breaks."""

    def join(self, broker_id: int, directory_id: str = "") -> "MemoryPeers":
        """A broker of this network; one that joins again replaces the earlier process."""
        identity = PeerIdentity(BrokerId(broker_id), DirectoryId(directory_id or f"directory-{broker_id}"))
        peers = self.members[identity.broker_id] = MemoryPeers(self, identity)
        return peers

    def leave(self, broker_id: int) -> None:
        """The process of a broker ends."""
        self.members.pop(BrokerId(broker_id), None)

    def cut(self, one: int, other: int) -> None:
        """Cut both directions between two brokers."""
        self.cuts |= {(BrokerId(one), BrokerId(other)), (BrokerId(other), BrokerId(one))}

    def heal(self) -> None:
        """Mend all links."""
        self.cuts.clear()

    def passes(self, sender: BrokerId, to: BrokerId) -> bool:
        """Whether a frame arrives."""
        return to in self.members and (sender, to) not in self.cuts


class _Parts:
    """Parts of one answer: once one is lost, so is everything behind it, as on a connection that breaks."""

    def __init__(self, on_part: PartHandler | None, passes: Callable[[], bool]) -> None:
        self._on_part = on_part
        self._passes = passes
        self.lost = self.ended = False

    def send(self, part: Sequence[Bytes]) -> None:
        self.lost = self.lost or not self._passes()
        if not self.lost:
            asyncio.get_running_loop().call_soon(self._deliver, b"".join(part))

    def _deliver(self, part: bytes) -> None:
        assert self._on_part is not None, "the caller takes no parts"
        if not self.ended:
            self._on_part(memoryview(part))


class MemoryPeers:
    """`broker.peers.Peers` of one broker."""

    def __init__(self, network: MemoryNetwork, identity: PeerIdentity) -> None:
        self.identity = identity
        self._network = network
        self._requests: dict[FrameKind, PartsRequestHandler] = {}
        self._posts: dict[FrameKind, PostHandler] = {}

    @property
    def address(self) -> Address:
        """What `call_address` takes: the port is the broker's id."""
        return Address("memory", self.identity.broker_id)

    def identify(self, identity: PeerIdentity) -> None:
        """Its ids are known from the start; the cluster's may come later."""
        assert identity.broker_id == self.identity.broker_id
        self.identity = identity

    def know_processes(self, registered: Callable[[PeerIdentity], str], check_noted: Callable[[str], None]) -> None:
        """There are no handshakes."""

    def serve(self, kind: FrameKind, handler: RequestHandler) -> None:
        self._requests[kind] = lambda sender, body, _: handler(sender, body)

    def serve_in_parts(self, kind: FrameKind, handler: PartsRequestHandler) -> None:
        self._requests[kind] = handler

    def handler(self, kind: FrameKind) -> PartsRequestHandler:
        """Who answers requests of a kind."""
        return self._requests[kind]

    def serve_posts(self, kind: FrameKind, handler: PostHandler) -> None:
        self._posts[kind] = handler

    def locate(self, addresses: Mapping[BrokerId, Address]) -> None:
        """Broker ids are all that is needed."""

    def lost_for_s(self, to: BrokerId) -> float | None:
        """There are no connections that could break."""
        return None

    def post(self, to: BrokerId, kind: FrameKind, body: Sequence[Bytes]) -> bool:
        if to not in self._network.members:
            return False
        asyncio.get_running_loop().call_soon(self._deliver, to, kind, b"".join(body))
        return True

    def _deliver(self, to: BrokerId, kind: FrameKind, body: bytes) -> None:
        if kind not in self._network.lost_posts and self._network.passes(self.identity.broker_id, to):
            handler = self._network.members[to]._posts.get(kind)
            if handler is not None:
                handler(self.identity, memoryview(body))

    async def call(
        self,
        to: BrokerId,
        kind: FrameKind,
        body: Sequence[Bytes],
        *,
        timeout_s: float,
        on_part: PartHandler | None = None,
    ) -> memoryview:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._call(to, kind, b"".join(body), on_part)
        except TimeoutError:
            raise PeerUnavailableError(f"broker {to} did not answer within {timeout_s} s") from None

    async def _call(self, to: BrokerId, kind: FrameKind, body: bytes, on_part: PartHandler | None) -> memoryview:
        await asyncio.sleep(0)
        member = self._network.members.get(to)
        if member is None:
            raise PeerUnavailableError(f"broker {to} does not run")
        lost = asyncio.Event()
        if not self._network.passes(self.identity.broker_id, to):
            await lost.wait()
        while kind not in member._requests:
            await asyncio.sleep(0.01)
        parts = _Parts(on_part, lambda: self._network.passes(to, self.identity.broker_id))
        try:
            answer = b"".join(await member._requests[kind](self.identity, memoryview(body), parts.send))
            await asyncio.sleep(0)  # parts come first
        finally:
            parts.ended = True
        if parts.lost or not self._network.passes(to, self.identity.broker_id):
            await lost.wait()
        return memoryview(answer)

    async def call_address(
        self, address: Address, kind: FrameKind, body: Sequence[Bytes], *, timeout_s: float
    ) -> tuple[PeerIdentity, memoryview]:
        """The port of the address is the id of the broker."""
        to = BrokerId(address.port)
        answer = await self.call(to, kind, body, timeout_s=timeout_s)
        return self._network.members[to].identity, answer
