"""What this broker does with the frames of others: the handlers of each kind, and the requests that wait for one."""

import asyncio
from collections.abc import Sequence
from functools import partial

from logboom.base.ports import Bytes
from logboom.broker.peers import (
    ONE_WAY,
    FrameKind,
    PartsRequestHandler,
    PeerIdentity,
    PeerUnavailableError,
    PostHandler,
    RequestHandler,
    SendPart,
)


class Handlers:
    """The handlers of one server. Called on its loop."""

    def __init__(self) -> None:
        self.posts: dict[FrameKind, PostHandler] = {}
        self.requests: dict[FrameKind, PartsRequestHandler] = {}
        self._waiting: dict[FrameKind, asyncio.Event] = {}

    def serve(self, kind: FrameKind, handler: RequestHandler) -> None:
        """Answer requests of a kind, those that wait first."""
        self.serve_in_parts(kind, partial(_whole, handler))

    def serve_in_parts(self, kind: FrameKind, handler: PartsRequestHandler) -> None:
        """The same, with answers that may come in parts."""
        assert kind not in ONE_WAY
        self.requests[kind] = handler
        if (waiting := self._waiting.pop(kind, None)) is not None:
            waiting.set()

    def serve_posts(self, kind: FrameKind, handler: PostHandler) -> None:
        """Take frames of a kind that are not answered."""
        assert kind in ONE_WAY
        self.posts[kind] = handler

    async def for_requests(self, kind: FrameKind, timeout_s: float) -> PartsRequestHandler:
        """The handler of a kind, which may come late. Raises PeerUnavailableError when the time is over."""
        if (handler := self.requests.get(kind)) is not None:
            return handler
        try:
            async with asyncio.timeout(timeout_s):
                await self._waiting.setdefault(kind, asyncio.Event()).wait()
        except TimeoutError:
            raise PeerUnavailableError("the broker that was asked has not started yet") from None
        return self.requests[kind]


async def _whole(handler: RequestHandler, sender: PeerIdentity, body: memoryview, _: SendPart) -> Sequence[Bytes]:
    return await handler(sender, body)
