"""A broker whose process hangs: what others ask of it fails in time, and works again once it goes on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.peer.servers import identity, real, servers, until
from tests.support.waiting import WAIT_S

from logboom.base.ids import BrokerId
from logboom.base.units import MIB
from logboom.broker.peers import Address, FrameKind, Lane, PeerUnavailableError
from logboom.peer.connection import UNSENT_BYTES_MAX

TWO = BrokerId(2)
OTHER = """
import asyncio
import uvloop
from tests.peer.servers import LoggingServer, address, echo, identity
from logboom.broker.peers import FrameKind

async def main():
    server = LoggingServer()
    await server.start()
    server.identify(identity(2))
    server.serve(FrameKind.CONTROL, echo)
    server.serve_posts(FrameKind.RAFT, lambda who, body: None)
    print(address(server).port, flush=True)
    await asyncio.Event().wait()

uvloop.run(main())
"""


@pytest.fixture
def other() -> Iterator[tuple[Address, int]]:
    """A broker in a process of its own: its address and its process id."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    try:
        yield Address("127.0.0.1", int(process.stdout.readline())), process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_process_that_is_stopped_for_a_while(other: tuple[Address, int]) -> None:
    there, process_id = other

    async def body() -> None:
        async with servers(identity(1)) as (one,):
            one.locate({TWO: there})
            await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=WAIT_S)
            os.kill(process_id, signal.SIGSTOP)
            with pytest.raises(PeerUnavailableError, match="did not answer within"):
                await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=0.5)
            sent = 0
            while one.post(TWO, FrameKind.RAFT, [bytes(MIB)]):
                sent += 1
                await asyncio.sleep(0.001)
                assert sent * MIB < 4 * UNSENT_BYTES_MAX
            await until(lambda: one.metrics.lanes[Lane.CONTROL].connections == 0)
            with pytest.raises(PeerUnavailableError):
                await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=0.5)
            os.kill(process_id, signal.SIGCONT)
            answer = await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=WAIT_S)
            assert bytes(answer) == b"1 directory-1: ?"

    real(body)
