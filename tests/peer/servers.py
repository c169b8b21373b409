"""Brokers of a cluster that are nothing but their peer servers, for tests: on real sockets, or simulated ones."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog
import uvloop
from structlog.testing import CapturingLogger
from tests.support.simulated import machine
from tests.support.waiting import WAIT_S

from logboom.base.ids import BrokerId, DirectoryId
from logboom.broker.peers import PeerIdentity
from logboom.peer.config import PeerConfig
from logboom.peer.server import PeerServer

KEY = bytes(range(32))
CLUSTER = "cluster-of-tests"


class LoggingServer(PeerServer):
    """A server that remembers what it logs."""

    def __init__(self, *keys: bytes, **config: Any) -> None:
        runtime, _ = machine()
        self.lines = CapturingLogger()
        log = structlog.wrap_logger(
            self.lines, processors=[], wrapper_class=structlog.make_filtering_bound_logger("debug")
        )
        settings = {"listen": "127.0.0.1:0", "key_file": Path("of-no-use"), **config}
        super().__init__(PeerConfig.model_validate(settings), keys or (KEY,), runtime=runtime, log=log)

    def logged(self, field: str = "why") -> list[str]:
        """What the lines of the log have in a field."""
        return [str(call.kwargs[field]) for call in self.lines.calls if field in call.kwargs]


def identity(broker_id: int, cluster_id: str = CLUSTER, directory_id: str = "") -> PeerIdentity:
    """Who a broker of a test is."""
    return PeerIdentity(BrokerId(broker_id), DirectoryId(directory_id or f"directory-{broker_id}"), cluster_id)


@contextlib.asynccontextmanager
async def servers(*identities: PeerIdentity, key: bytes = KEY) -> AsyncIterator[list[LoggingServer]]:
    """Servers that know where each other is."""
    made: list[LoggingServer] = []
    try:
        for _ in identities:
            made.append(LoggingServer(key))
            await made[-1].start()
        for one, who in zip(made, identities, strict=True):
            one.identify(who)
            one.locate({other.broker_id: address(server) for other, server in zip(identities, made, strict=True)})
        yield made
    finally:
        for one in made:
            await one.stop()


def address(server: PeerServer) -> Any:
    """Where it listens."""
    assert server.address is not None
    return server.address


async def until(condition: Callable[[], bool], *, wait_s: float = WAIT_S) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(wait_s):
        while not condition():
            await asyncio.sleep(0.005)


async def echo(who: PeerIdentity, body: memoryview) -> list[bytes | memoryview]:
    """A handler: who has asked, and what."""
    return [f"{who.broker_id} {who.directory_id}: ".encode(), body]


def real(body: Callable[[], Awaitable[None]]) -> None:
    """Run a test on real sockets, with the loop of a real node."""

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await body()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())
