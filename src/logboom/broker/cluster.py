"""This broker as a member of its cluster: the consensus group, the metadata, the controller, the registration.

How these are wired, and in which order they start and end. A single node is a cluster of one: the only voter of its
group, its own controller.

    (`joining` has opened the group's files: of a member, of a broker that joins, of one that founds)
    start       the group lives: the image is what was committed here
    register    the controller knows this process, and the image has its registration
    (the broker recovers its partitions)
    serve       heartbeats say that it is ready; returns when it is unfenced
    leave       others lead what they can
    stop        nothing is decided or committed here any more

Knows no partition. On the loop, but for `open`.
"""

import asyncio
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current, DynamicSettings
from logboom.base.errors import LogboomError, NotControllerError, StorageError
from logboom.base.ids import NO_BROKER, BrokerId, DirectoryId, Epoch, Offset, PartitionIndex, StreamName
from logboom.base.ports import Disk
from logboom.broker.config import BrokerConfig
from logboom.broker.control import commands
from logboom.broker.control.broker_commands import PEER_LISTENER
from logboom.broker.control.channel import ControlChannel
from logboom.broker.control.clean_shutdown import read_marker, write_marker
from logboom.broker.control.context import ControlContext
from logboom.broker.control.controller import Controller
from logboom.broker.control.controllership import Controllership
from logboom.broker.control.incarnations import KnownProcesses, note_process
from logboom.broker.control.membership import MembershipManager
from logboom.broker.control.nodes import NodeDirectory, node_id_of
from logboom.broker.control.partition_control import PartitionControl
from logboom.broker.control.registration import BrokerHooks, Registration
from logboom.broker.control.unclean_recovery import AskEnds
from logboom.broker.control.upkeep import Upkeep
from logboom.broker.disk.data_dir import Identity
from logboom.broker.group_commit import GroupCommit
from logboom.broker.metadata_state import MetadataState
from logboom.broker.metrics import Counters
from logboom.broker.peers import Address, FrameKind, PeerIdentity, Peers
from logboom.broker.quorum import UNKNOWN_MS, QuorumMember, QuorumView
from logboom.broker.raft.group import OpenedGroup, RaftGroup
from logboom.broker.raft.ports import GroupStatus, Leadership
from logboom.broker.raft.settings import RaftSettings
from logboom.broker.registrar import Registrar
from logboom.broker.runtime import Runtime
from logboom.broker.suspected_brokers import SuspectedBrokers
from logboom.metadata import ImageDelta
from logboom.metadata.records import PartitionsPlaced, Placed
from logboom.raft import NodeId

_DESCRIBE_ANSWER_S: Final = 2.0
_ADOPTED_PER_COMMIT: Final = 500
_DRAIN_S: Final = 5.0
"""How long changes that wait for a majority, or for room on the disk, are waited for at the end."""


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """What the member needs of the broker around it."""

    identity: Identity
    processes: KnownProcesses
    disk: Disk
    config: Current[BrokerConfig]
    dynamic_settings: DynamicSettings
    flusher: GroupCommit
    peers: Peers
    listeners: Mapping[str, tuple[str, int]]
    counters: Counters
    ask_ends: AskEnds
    runtime: Runtime
    log: FilteringBoundLogger


class ClusterMember:
    """See the module."""

    def __init__(self, parts: ClusterParts, opened: OpenedGroup, hooks: BrokerHooks) -> None:
        self._parts = parts
        self._joins = not opened.belongs_to_group
        self._group = group = RaftGroup(
            opened,
            flusher=parts.flusher,
            transport=self,
            runtime=parts.runtime,
            settings=RaftSettings(snapshot_entries=lambda: parts.config.now.metadata_snapshot_records),
            log=parts.log,
            on_failure=self._group_failed,
        )
        self._ending: asyncio.Future[None] | None = None
        self._nodes = NodeDirectory()
        self._nodes.learn([parts.identity.as_peer])
        self.view = Controllership(self._nodes)
        self.state = MetadataState(parts.counters, self._leadership_changed)
        context = ControlContext(
            writer=self.state,
            config=parts.config,
            dynamic_settings=parts.dynamic_settings,
            identity=parts.identity,
            ids=parts.runtime.ids,
            clock=parts.runtime.clock,
            log=parts.log,
        )
        self.controller = Controller(context, group.confirm_leadership, parts.ask_ends)
        self._membership = MembershipManager(context, group, lambda: self.view.serving)
        self._upkeep = Upkeep(context, self.controller.in_order, lambda: self.view.serving)
        self.channel = ControlChannel(
            self.view,
            self._execute,
            parts.peers,
            parts.runtime.clock,
            self.state,
            cluster_name=parts.identity.cluster_name,
            timeout_s=lambda: parts.config.now.command_timeout_ms / 1_000,
        )
        self._registrar = Registrar(
            parts.processes,
            self.channel,
            parts.peers,
            parts.config,
            metadata=self.state,
            joins=self._joins,
            clock=parts.runtime.clock,
            log=parts.log,
        )
        self.registration = Registration(
            parts.identity,
            parts.config,
            self.channel,
            runtime=parts.runtime,
            log=parts.log,
            is_sole_voter=self._is_sole_voter,
            applied=lambda: self.state.applied_index,
            ask_another=self._registrar.ask_another,
            hooks=hooks,
        )
        self.partitions = PartitionControl(parts.identity.broker_id, self.channel, self.registration, self.state)
        self.suspected = SuspectedBrokers(
            parts.peers, parts.runtime.clock, lease_s=lambda: parts.config.now.lease_ms / 1_000
        )
        """Brokers that may just have gone."""
        self.state.watch(self._image_changed)
        self.state.watch(self.suspected.image_changed)
        self.state.attach(group.propose)
        parts.peers.serve_posts(FrameKind.RAFT, self._raft_message)
        parts.peers.serve_posts(FrameKind.SNAPSHOT, self._raft_message)

    @property
    def peer_address(self) -> Address | None:
        """Where other brokers connect to this one; None where it listens for none."""
        return self._parts.peers.address

    # --- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """The group lives, and the image is what this broker knows to be committed."""
        await self._group.start(self.state)
        self._membership.start()
        self._upkeep.loop.start()
        self.controller.recovery.loop.start()

    async def register(self) -> None:
        """Return once this process is registered and the image says so. Waits for a controller as long as it takes.

        Raises DuplicateBrokerError, UnknownBrokerError, PeerRefusedError and the like: then this broker cannot be part
        of the cluster.
        """
        clean_epoch = await asyncio.to_thread(read_marker, self._parts.disk)
        listeners = dict(self._parts.listeners)
        if self._parts.peers.address is not None:
            listeners[PEER_LISTENER] = self._parts.peers.address
        software = importlib.metadata.version("logboom")
        returning = not self._joins and bool(self.state.image.brokers)
        known = self.state.image.brokers.get(self._parts.identity.broker_id)
        earlier = await asyncio.to_thread(
            note_process,
            self._parts.disk,
            self.registration.incarnation,
            registered=None if known is None else known.incarnation,
            is_new=not returning,
        )
        self._parts.processes.note(self.registration.incarnation)
        command = self.registration.command(listeners, software, clean_epoch, returning=returning, earlier=earlier)
        answer = await self._registrar.registered(command)
        self.registration.registered(answer)
        self._learn(answer)
        while (broker := self.state.image.brokers.get(BrokerId(command.id))) is None or broker.epoch != answer.epoch:
            await self.state.changed()
        self.registration.start()

    async def serve(self) -> None:
        """This broker has recovered; returns when the controller lets it take part."""
        await self.registration.ready()

    async def leave(self, timeout_s: float) -> None:
        """Others lead what they can, and another one is the controller where there can be one."""
        own = self._parts.identity.broker_id
        others = any(one.active for one in self.state.image.brokers.values() if one.id != own)
        if others and not await self._others_lead(timeout_s):
            self._parts.log.warning("partitions are still led here: the cluster did not take them over in time")
        self._hand_over()

    async def _others_lead(self, timeout_s: float) -> bool:
        """Return once this broker leads nothing that others can, and knows it: its front ends have to hand over what
        they took as the leader. False where that takes longer than this many seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                left = await self.registration.leave(timeout_s)
                await self.state.applied(self.registration.to_apply)
        except TimeoutError:
            return False
        return left

    async def drain(self) -> None:
        """Return once every change of the metadata that was begun here has ended."""
        await self._upkeep.loop.stop()
        await self.controller.recovery.loop.stop()
        await self.controller.drain(_DRAIN_S)
        await self._membership.stop()

    async def stop(self) -> None:
        """Decide and commit nothing more. Idempotent, and for a start that failed too."""
        await self.drain()
        await self.registration.stop()
        await self._group.stop()
        await self.controller.drain(_DRAIN_S)
        self.state.end(StorageError("the broker is shutting down"))

    def closed_cleanly(self) -> None:
        """All logs of this broker are closed. On a thread that may wait for the disk."""
        if self.registration.epoch >= 0:
            try:
                write_marker(self._parts.disk, self.registration.epoch)
            except OSError as error:  # a full disk: the next start is taken for one after a crash
                self._parts.log.error("the clean shutdown is not marked", reason=str(error))

    def log_dir_failed(self, error: StorageError) -> None:
        """No write to this log dir, which also has the group's log, can be trusted any more."""
        self._group.end(error)

    async def adopt_streams(self, led_here: Callable[[StreamName, PartitionIndex], Epoch]) -> None:
        """Record which broker holds the streams from the time before assignments: this broker, which was alone then."""
        own = (self._parts.identity.broker_id,)
        records = [
            PartitionsPlaced(
                id=stream.id,
                placed=tuple(
                    Placed(own, own, own[0], led_here(stream.name, PartitionIndex(index)))
                    for index in range(stream.partitions)
                ),
            )
            for stream in self.state.image
            if not stream.assignments
        ]
        for start in range(0, len(records), _ADOPTED_PER_COMMIT):
            await self.controller.in_order(partial(self.state.commit, records[start : start + _ADOPTED_PER_COMMIT]))

    # --- questions -------------------------------------------------------------------------------------------------

    @property
    def status(self) -> GroupStatus:
        """The consensus group as this member sees it."""
        return self._group.status

    async def describe_quorum(self) -> QuorumView:
        """The consensus group as the controller sees it, since only the controller knows how far the others are; or as
        this broker sees it, if the controller cannot be asked."""
        try:
            view: QuorumView = await self.channel.ask_once(
                commands.DescribeQuorum(), QuorumView, timeout_s=_DESCRIBE_ANSWER_S
            )
        except LogboomError:
            return self.quorum()
        return view

    async def _execute(self, command: commands.AnyCommand, revision: int | None) -> commands.Answer:
        """`channel.Execute`: commands are the controller's, but for those about the group."""
        if not isinstance(command, commands.DescribeQuorum):
            return await self.controller.execute(command, revision)
        if not self.view.serving:
            raise NotControllerError("this broker is not the controller")
        return commands.answer(self.state.applied_index, self.quorum())

    def quorum(self) -> QuorumView:
        """The consensus group as this broker sees it."""
        now_ms = self._parts.runtime.clock.wall_ms()
        status = self._group.status
        brokers = {node_id_of(one.id, one.directory_id): one for one in self.state.image.brokers.values()}
        members = [
            (
                one,
                QuorumMember(
                    brokers[one.node_id].id,
                    brokers[one.node_id].directory_id,
                    Offset(one.match_index),
                    last_caught_up_ms=now_ms if one.recently_active else UNKNOWN_MS,
                ),
            )
            for one in status.members
            if one.node_id in brokers
        ]
        members.sort(key=lambda described: described[1].broker_id)
        voters = tuple(member for one, member in members if one.is_voter)
        learners = tuple(member for one, member in members if not one.is_voter)
        leader = self.view.controller
        return QuorumView(
            NO_BROKER if leader is None else leader,
            Epoch(status.leadership.term),
            Offset(status.commit),
            voters,
            learners,
        )

    def _is_sole_voter(self) -> bool:
        members = self._group.members
        return members.voters == (self._group.node_id,) and not members.voters_outgoing

    def _hand_over(self) -> None:
        """Another voter leads the group, the one that is least behind."""
        others = [
            one
            for one in self._group.status.members
            if one.is_voter and one.recently_active and one.node_id != self._group.node_id
        ]
        if others:
            self._group.transfer_leadership(max(others, key=lambda one: one.match_index).node_id)

    # --- what the group tells, and what it sends ---------------------------------------------------------------------

    def _leadership_changed(self, leadership: Leadership) -> None:
        self.view.update(leadership)
        self.controller.leadership_changed(serving=leadership.serving)
        self._membership.look()

    def _group_failed(self, error: LogboomError) -> None:
        self.view.fail(error)
        self.state.end(error)
        self._ending = asyncio.ensure_future(self.registration.end())

    def _image_changed(self, delta: ImageDelta) -> None:
        if delta.before.brokers is delta.after.brokers:
            return
        self._nodes.learn_image(delta.after)
        addresses = {
            one.id: Address(*one.listeners[PEER_LISTENER])
            for one in delta.after.brokers.values()
            if PEER_LISTENER in one.listeners and one.id != self._parts.identity.broker_id
        }
        self._parts.peers.locate(addresses)
        self._membership.look()

    def _learn(self, answer: commands.Registered) -> None:
        """A broker that joins knows nobody yet."""
        identities: list[PeerIdentity] = []
        addresses: dict[BrokerId, Address] = {}
        for broker, (directory, address) in answer.members.items():
            identities.append(PeerIdentity(BrokerId(broker), DirectoryId(directory)))
            if address is not None and broker != self._parts.identity.broker_id:
                addresses[BrokerId(broker)] = Address(*address)
        self._nodes.learn(identities)
        self._parts.peers.locate(addresses)

    def send(self, to: NodeId, message: bytes, *, is_snapshot: bool) -> bool:
        """`raft.ports.RaftTransport`."""
        broker = self._nodes.broker(to)
        kind = FrameKind.SNAPSHOT if is_snapshot else FrameKind.RAFT
        return broker is not None and self._parts.peers.post(broker, kind, (message,))

    def _raft_message(self, peer: PeerIdentity, body: memoryview) -> None:
        self._nodes.learn([peer])
        self._group.received(body, node_id_of(peer.broker_id, peer.directory_id))
