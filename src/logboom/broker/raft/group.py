"""One running member of the group: it feeds events to a `raft.Node` and performs the effects that the node returns.

    received, propose, ...  ->  Node.step  ->  Persist              Writer: files and group commit -> Persisted
    time, when that does something             Send                 the transport; the node learns of drops
    Persisted, Applied, ...                    Apply, Restore       Applier: the state machine     -> Applied
                                               the rest             the futures that wait for them

Effects are begun in the order in which the node gives them. Events that occur meanwhile are fed to the node after them.

A member that is the only voter needs no time: it arms no timer, and one proposal costs one append and one sync. The
state machine is on the loop; the disk never is.

Snapshots are taken between two entries, once many were applied since the last one, or when a member needs one. So a
start reads no more than a snapshot and about as much again, and the entries in memory are bounded in the same way.

A leader whose disk hangs or is full still leads but cannot commit with its own vote. It hands leadership to another
voter.

When the disk fails for good, the state machine raises an error, or the core finds that its log was lost, the group
ends on this node: all who wait get the error, `on_failure` is called, and the others elect another leader. What was
applied stays as it is, for those who only read it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError, NotControllerError, OutcomeUnknownError, StorageError
from logboom.base.ports import Disk
from logboom.broker.group_commit import GroupCommit
from logboom.broker.raft.applier import Applier, ApplierEvents
from logboom.broker.raft.driver import Driver, now_ms
from logboom.broker.raft.files import RaftFiles, Report
from logboom.broker.raft.pending import MemberChanges, PendingProposals, PendingReads, Waiter, answer, fail
from logboom.broker.raft.ports import (
    GroupStatus,
    Leadership,
    MemberStatus,
    ProposalRejectedError,
    RaftTransport,
    StateMachine,
)
from logboom.broker.raft.settings import PROPOSAL_BYTES_MAX, PROPOSALS_MAX, RaftSettings
from logboom.broker.raft.snapshots import Snapshots
from logboom.broker.raft.writer import KeepCommit, Writer, WriterEvents
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.broker.runtime import Runtime
from logboom.raft import (
    NOBODY,
    Applied,
    Apply,
    ConfChangeV2,
    ConfigurationChanged,
    ConfState,
    DiscardLog,
    Effect,
    Entry,
    EntryType,
    Event,
    Ignored,
    Index,
    InvalidMessageError,
    LogLostError,
    Message,
    MessageType,
    Node,
    NodeId,
    PeerUnreachable,
    Persist,
    Persisted,
    ProposalAppended,
    ProposalDropped,
    Propose,
    ProposeConfChange,
    ReadReady,
    Received,
    RequestRead,
    Restore,
    Role,
    RoleChanged,
    Send,
    Snapshot,
    SnapshotSent,
    SnapshotTaken,
    SnapshotWanted,
    Stored,
    Term,
    TimePassed,
    TransferLeadership,
    bootstrap,
    decode_message,
    encode_message,
)


class OpenedGroup:
    """A member as recovered from its files, before it runs. Made by `open`, on a thread that may wait for the disk."""

    def __init__(self, files: RaftFiles, stored: Stored, node_id: NodeId) -> None:
        self.files = files
        self.stored = stored
        self.node_id = node_id

    @classmethod
    def open(cls, disk: Disk, directory: str, node_id: NodeId, *, joins: bool, report: Report) -> "OpenedGroup":
        """Recover the member in `directory`, or make a new one there.

        A new member is the only voter of a new group or, where it `joins`, one of no group, which waits until a leader
        adds it. Raises StorageError where the disk fails or the files are damaged.
        """
        found = RaftFiles.open(disk, directory, report)
        if found is None:
            RaftFiles.create(disk, directory, Stored() if joins else bootstrap((node_id,)))
            found = RaftFiles.open(disk, directory, report)
            assert found is not None, "it was just created"
        files, stored = found
        return cls(files, stored, node_id)

    @property
    def belongs_to_group(self) -> bool:
        """Whether it has ever been a member of a group."""
        return not self.stored.snapshot.is_empty

    @property
    def is_alone(self) -> bool:
        """Whether it was the only member when its last snapshot was taken, as one that has founded a group is."""
        members = self.stored.snapshot.conf_state
        return members.voters == (self.node_id,) and not members.learners

    @property
    def snapshot(self) -> bytes:
        """The state of the last snapshot; empty where there is none, or nothing was applied before it."""
        return self.stored.snapshot.data

    @property
    def committed(self) -> tuple[Entry, ...]:
        """The entries behind the snapshot that are known to be committed and have data, to be applied one by one."""
        first, last = self.stored.snapshot.index, self.stored.hard_state.commit
        return tuple(
            entry
            for entry in self.stored.entries
            if first < entry.index <= last and entry.type is EntryType.NORMAL and entry.data
        )


class RaftGroup:
    """See the module. Life: made on the loop from what was opened, `start`ed once, `stop`ped before the flusher is.

    Everything else is called on the loop, between `start` and `stop`; what is called after the end of the group raises
    why it ended.
    """

    def __init__(
        self,
        opened: OpenedGroup,
        *,
        flusher: GroupCommit,
        transport: RaftTransport,
        runtime: Runtime,
        settings: RaftSettings,
        log: FilteringBoundLogger,
        on_failure: Callable[[LogboomError], None],
    ) -> None:
        """`on_failure` is called once, if the group ends on this node by itself."""
        self.node_id = opened.node_id
        self.leadership = Leadership()
        self._opened = opened
        self._transport = transport
        self._clock = runtime.clock
        self._settings = settings
        self._log = log
        self._on_failure = on_failure
        self._failure: LogboomError | None = None
        self._machine: StateMachine | None = None
        self._applier: Applier | None = None
        self._limited_log = RateLimitedLog(log, runtime.clock, Counter())
        self._leads = False
        self._hand_over_ms = 0
        self._started: Waiter | None = None
        self._member_changes = MemberChanges(opened.stored.snapshot.conf_state)
        self._proposals = PendingProposals()
        self._reads = PendingReads(
            lambda number, urgent: self._driver.feed(RequestRead(number, urgent)), settings.timing.election_s
        )
        self._snapshots = Snapshots(settings, len(opened.snapshot), log)
        self._writer = Writer(
            opened.files,
            flusher,
            WriterEvents(
                persisted=lambda number: self._driver.feed(Persisted(number)),
                snapshot_taken=self._snapshot_taken,
                snapshot_failed=lambda error: self._snapshots.failed(error, now_ms(self._clock)),
                failed=self.end,
            ),
            runtime.clock,
            log,
        )
        node = Node(
            settings.core(self.node_id, runtime.ids.below),
            opened.stored,
            now_ms=now_ms(self._clock),
            tick_ms=settings.timing.tick_ms,
            catch_up_entries=settings.catch_up_entries,
        )
        self._driver = Driver(
            node,
            self._clock,
            perform=self._perform,
            looked=self._look_at_disk,
            failed=partial(self._broken, "the consensus core"),
        )

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self, machine: StateMachine) -> None:
        """Give the state machine the stored snapshot and what is known to be committed behind it, and live.

        Returns once that is applied. A member that is alone serves soon afterwards: `machine.leadership_changed` says
        so. Raises what `machine` raises, StorageError.
        """
        stored = self._opened.stored
        if stored.snapshot.data:
            await machine.restore(stored.snapshot.index, stored.snapshot.data)
        self._machine = machine
        self._applier = Applier(
            machine,
            stored.snapshot.index,
            ApplierEvents(
                entry_applied=self._entry_applied,
                restored=self._restored,
                applied=lambda index: self._driver.feed(Applied(index)),
                at_rest=self._at_rest,
                failed=partial(self._broken, "applying a committed change of the metadata"),
            ),
        )
        if self._applier.index < stored.hard_state.commit:
            self._started = asyncio.get_running_loop().create_future()
        self._driver.feed(TimePassed())
        if self._started is not None:
            await self._started

    async def stop(self) -> None:
        """Accept nothing new, wait for what is in progress, and close the files. The flusher still runs.

        Callers that wait get OutcomeUnknownError. A leader does not hand leadership over by itself.
        """
        is_whole = self._failure is None
        self._stop_living(OutcomeUnknownError("the broker is shutting down"))
        if self._applier is not None:
            await self._applier.stop()
        await self._writer.stop()
        try:
            files = self._opened.files
            await asyncio.to_thread(files.close if is_whole else files.abandon)
        except StorageError as error:  # a full disk: the next start recovers it
            self._log.error("the cluster's log is not closed cleanly", reason=str(error))

    def end(self, error: LogboomError) -> None:
        """End the group on this node, for example because the log dir failed elsewhere; all waiting callers get the
        error. Idempotent.

        Callers that wait for a proposal that is in the log get OutcomeUnknownError: others may have it, and commit it.
        """
        if self._failure is None:
            self._log.critical("the cluster's log ended on this broker", reason=str(error))
            self._stop_living(error)
            self._on_failure(error)

    def _stop_living(self, error: LogboomError) -> None:
        if self._failure is None:
            self._failure = error
            self._driver.stop()
            self._proposals.end(OutcomeUnknownError(f"the change may have been made: {error}"))
            self._reads.end(error)
            if self._started is not None:
                fail(self._started, error)
            self._member_changes.end(error)
            self._announce(Leadership(None, self.leadership.term))

    # --- what is asked of it --------------------------------------------------------------------------------------

    def received(self, message: memoryview, sender: NodeId) -> None:
        """A message of another member; the connection has authenticated the sender. Before `start` it is dropped."""
        if self._applier is None or self._failure is not None:
            return
        try:
            decoded = decode_message(message)
            if decoded.sender != sender:
                raise InvalidMessageError(f"node {sender} sent a message as node {decoded.sender}")
        except InvalidMessageError as error:
            self._limited_log.warning("invalid message", "a message of another broker is not valid", reason=str(error))
            return
        self._driver.feed(Received(decoded))

    async def propose(self, data: bytes) -> Index:
        """Have `data`, which is not empty, committed; returns the index of its entry once the state machine here has
        applied it.

        Raises ProposalRejectedError and ProposalLostError: it is not applied anywhere and never will be;
        OutcomeUnknownError: it may have been or may still be, also if the caller is cancelled. It waits as long as
        there is no majority.
        """
        assert data, "an empty entry is a leader's own"
        if len(data) > PROPOSAL_BYTES_MAX:
            raise ProposalRejectedError(f"a change of {len(data)} bytes is above the limit of {PROPOSAL_BYTES_MAX}")
        return await self._propose(lambda waiter: Propose(waiter, data))

    async def change_members(self, change: ConfChangeV2) -> None:
        """Change the members; returns once the change holds, as far as this node knows. One at a time.

        Raises as `propose`; ProposalRejectedError also where another change is under way or this one is not possible.
        """
        index = await self._propose(lambda waiter: ProposeConfChange(waiter, change))
        await self._member_changes.wait_for(index)

    async def _propose(self, event: Callable[[Waiter], Event]) -> Index:
        self._check()
        if len(self._proposals) >= PROPOSALS_MAX:
            raise ProposalRejectedError(f"{PROPOSALS_MAX} changes wait to be committed")
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._proposals.proposed(waiter)
        self._driver.feed(event(waiter))
        return await waiter

    async def confirm_leadership(self, *, urgent: bool = True) -> Index:
        """Return once it is certain that this node led at some time after the call and has applied everything that was
        committed before the call; returns the index of that. A call that is not urgent waits for the group's next
        heartbeats, which are sent anyway.

        Raises NotControllerError if it does not lead, or no longer. While it leads and cannot commit the first entry of
        its term, for example on a full disk, it waits.
        """
        self._check()
        if not self._leads:
            raise NotControllerError("this broker is not the controller")
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._reads.add(waiter, urgent=urgent)
        return await waiter

    def transfer_leadership(self, to: NodeId) -> None:
        """Have another voter lead, if this node leads; otherwise nothing happens. That voter has an election timeout to
        take over, during which proposals are rejected."""
        self._driver.feed(TransferLeadership(to))

    @property
    def members(self) -> ConfState:
        """The members, as far as their changes are applied here."""
        return self._member_changes.members

    @property
    def status(self) -> GroupStatus:
        """The state of the group for people."""
        status = self._driver.node.status
        return GroupStatus(
            self.leadership,
            status.last_index,
            status.hard_state.commit,
            self._opened.stored.snapshot.index if self._applier is None else self._applier.index,
            tuple(
                MemberStatus(
                    node_id,
                    each.match_index,
                    is_voter=not each.is_learner,
                    # The core gives who was just added the benefit of the doubt.
                    recently_active=node_id == self.node_id or (each.recent_active and each.match_index > 0),
                )
                for node_id, each in sorted(status.progress.items())
            ),
        )

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        assert self._applier is not None, "the group was not started"

    # --- effects --------------------------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        assert self._applier is not None
        match effect:
            case Persist() | DiscardLog():
                self._writer.put(effect)
            case Send(message):
                self._send(message)
            case Apply() | Restore():
                self._applier.put(effect)
            case ConfigurationChanged(index, members):
                self._member_changes.changed(index, members)
                # A voter that is left alone would otherwise ask one for its vote after a crash that may be gone.
                self._writer.put(KeepCommit())
            case ProposalAppended(token, entry_id):
                self._proposals.appended(token, entry_id)
            case ProposalDropped(token, reason):
                self._proposals.dropped(token, reason)
            case ReadReady(number, index):
                self._reads.answered(number, index, self._applier.index)
            case RoleChanged(role, lead, term):
                self._role_changed(role, lead, term)
            case SnapshotWanted():
                self._snapshots.want()
                if self._applier.idle:
                    self._at_rest()
            case Ignored():
                pass  # a message that was repeated, late or for an earlier member

    def _send(self, message: Message) -> None:
        is_snapshot = message.type is MessageType.SNAP
        sent = self._transport.send(message.to, encode_message(message), is_snapshot=is_snapshot)
        if is_snapshot:
            self._driver.feed(SnapshotSent(message.to, failed=not sent))
        elif (
            not sent and message.type is MessageType.APP
        ):  # heartbeats go on at the same rate, whether they arrive or not
            self._driver.feed(PeerUnreachable(message.to))

    def _role_changed(self, role: Role, lead: NodeId, term: Term) -> None:
        led, self._leads = self._leads, role is Role.LEADER
        if led and (not self._leads or term != self.leadership.term):
            self._reads.leadership_lost()
        self._announce(Leadership(None if lead == NOBODY else lead, term))

    def _announce(self, leadership: Leadership) -> None:
        if leadership != self.leadership:
            self.leadership = leadership
            if self._machine is not None:
                self._machine.leadership_changed(leadership)

    def _look_at_disk(self) -> None:
        """Hand leadership over while this disk hangs or is full, since what others have committed is not applied
        here."""
        now = now_ms(self._clock)
        if self._leads and self._writer.stalled_ms >= self._settings.stall_ms and now >= self._hand_over_ms:
            self._hand_over_ms = now + self._settings.stall_ms
            others = [one for one in self.status.members if one.is_voter and one.recently_active]
            best = max(others, key=lambda one: (one.node_id != self.node_id, one.match_index), default=None)
            if best is not None and best.node_id != self.node_id:
                self._log.warning("another broker becomes the controller: the disk of this one accepts no writes")
                self.transfer_leadership(best.node_id)

    # --- outcomes -------------------------------------------------------------------------------------------------

    def _entry_applied(self, entry: Entry) -> None:
        self._snapshots.applied(entry)
        if self._started is not None and entry.index >= self._opened.stored.hard_state.commit:
            answer(self._started, entry.index)
        if self._failure is not None:
            return
        leadership = self.leadership
        if self._leads and not leadership.serving and entry.term == leadership.term:
            self._announce(replace(leadership, serving=True))
        self._proposals.applied(entry)
        self._reads.applied(entry.index)

    def _restored(self, snapshot: Snapshot) -> None:
        self._snapshots.restored(snapshot)
        self._member_changes.changed(snapshot.index, snapshot.conf_state)
        self._proposals.restored(
            snapshot.index, OutcomeUnknownError("the change may have been made: this broker was too far behind to see")
        )
        self._reads.applied(snapshot.index)

    def _at_rest(self) -> None:
        """Take a snapshot, if one is due."""
        assert self._applier is not None
        assert self._machine is not None
        now = now_ms(self._clock)
        point = self._driver.node.snapshot_point if self._snapshots.is_due(now) else None
        if point is None or point.index != self._applier.index:
            return
        snapshot = self._snapshots.take(point, self._machine, now)
        if snapshot is not None:
            self._writer.put(snapshot)

    def _snapshot_taken(self, snapshot: Snapshot) -> None:
        self._snapshots.taken(snapshot)
        self._driver.feed(SnapshotTaken(snapshot))

    def _broken(self, what: str, error: Exception) -> None:
        if not isinstance(error, LogboomError):
            self._log.error(f"{what} failed on an internal error", exc_info=error)
        self.end(error if isinstance(error, LogLostError) else StorageError(f"{what} failed: {error!r}"))
