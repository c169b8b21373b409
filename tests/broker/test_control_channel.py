"""Commands on their way to the controller: where its disk has failed, and where it changes meanwhile."""

import asyncio
from dataclasses import replace

import pytest
from tests.support.clock import ManualClock
from tests.support.waiting import WAIT_S

from logboom.base.errors import LogboomError, NotControllerError, StorageError
from logboom.base.ids import BrokerId, DirectoryId
from logboom.broker.control import commands
from logboom.broker.control.channel import ControlChannel
from logboom.broker.control.controllership import Controllership
from logboom.broker.control.nodes import NodeDirectory, node_id_of
from logboom.broker.metadata_state import MetadataState
from logboom.broker.metrics import Counters
from logboom.broker.peers import FrameKind, NoPeers, PeerIdentity, RequestHandler
from logboom.broker.raft.ports import Leadership
from logboom.host import SystemClock
from logboom.raft import Term

OTHER = PeerIdentity(BrokerId(2), DirectoryId("d"))
REGISTRATION = commands.RegisterBroker(id=2, directory_id="d", incarnation="i", listeners={})
FAULT = StorageError("the disk fails")


class AskedPeers(NoPeers):
    """Keeps who answers the requests of the others."""

    def serve(self, kind: FrameKind, handler: RequestHandler) -> None:
        self.handler = handler


def answer_of_a_broker_with(failure: LogboomError | None, *, forward: bool) -> None:
    """Ask a broker, on which every command ends with FAULT, as another one does."""

    async def asked() -> None:
        peers, view = AskedPeers(), Controllership(NodeDirectory())
        if failure is not None:
            view.fail(failure)

        async def execute(command: commands.AnyCommand, revision: int | None) -> commands.Answer:
            raise FAULT

        ControlChannel(
            view,
            execute,
            peers,
            ManualClock(),
            MetadataState(Counters(), lambda _: None),
            cluster_name="c",
            timeout_s=lambda: 1.0,
        )
        body = commands.encode(commands.Request(command=REGISTRATION, forward=forward))
        await peers.handler(OTHER, memoryview(body))

    asyncio.run(asked())


@pytest.mark.parametrize("forward", [False, True])
def test_who_asks_a_broker_whose_metadata_log_failed_is_told_to_ask_another_one(forward: bool) -> None:
    """It is no error of the disk of the one that asks: a broker that starts would end by it."""
    with pytest.raises(NotControllerError):
        answer_of_a_broker_with(FAULT, forward=forward)


def test_what_a_command_finds_wrong_with_the_disk_of_the_controller_is_told() -> None:
    with pytest.raises(StorageError):
        answer_of_a_broker_with(None, forward=False)


class SilentPeers(NoPeers):
    """Whoever is called does not answer."""

    async def call(self, *_: object, **__: object) -> memoryview:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


def test_a_broker_that_becomes_the_controller_as_it_sends_a_command_executes_it() -> None:
    """A founding broker is elected before it serves, so it called itself. It began to serve in the turn of the loop in
    which it called, went unnoticed, and was not ready for 30 s."""

    async def submitted() -> object:
        own = PeerIdentity(BrokerId(1), DirectoryId("d"))
        nodes = NodeDirectory()
        nodes.learn([own])
        elected = Leadership(node_id_of(own.broker_id, own.directory_id), Term(1))
        view = Controllership(nodes)
        view.update(elected)

        async def execute(command: commands.AnyCommand, revision: int | None) -> commands.Answer:
            return commands.answer(0, "executed")

        channel = ControlChannel(
            view,
            execute,
            SilentPeers(),
            SystemClock(),
            MetadataState(Counters(), lambda _: None),
            cluster_name="c",
            timeout_s=lambda: 3 * WAIT_S,
        )
        waits = asyncio.ensure_future(channel.submit(REGISTRATION, str))
        # Behind the start of the command, and before what it starts in turn.
        asyncio.get_running_loop().call_soon(view.update, replace(elected, serving=True))
        return await asyncio.wait_for(waits, WAIT_S)

    assert asyncio.run(submitted()) == "executed"
