"""The requests of members: join, sync, heartbeat, leave; and the expiry of sessions.

Each method validates the sender, answers what can be answered at once and leaves the rest to `Rebalance`. The checks
and their order are those of GroupMetadataManager of Apache Kafka 4.0.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from logboom.base.errors import InvalidRequestError, LogboomError, PolicyViolationError
from logboom.groups.context import CoordinatorContext
from logboom.groups.errors import (
    FencedInstanceIdError,
    GroupError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
    metadata_store_error,
)
from logboom.groups.events import (
    NO_MEMBER,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    Leaver,
    LeaveReply,
    Protocol,
    Sync,
    SyncReply,
    Token,
)
from logboom.groups.group import Group, Member, State
from logboom.groups.rebalance import HEARTBEAT, Rebalance


class Membership:
    """Serves requests of members. One per coordinator."""

    def __init__(self, context: CoordinatorContext, rebalance: Rebalance) -> None:
        self._context = context
        self._rebalance = rebalance
        self._pending_static_writes: dict[str, list[tuple[Token, Join]]] = {}
        """Groups for which a static member's new id is being written, with the static joins that wait for it."""

    # --- join ---------------------------------------------------------------------------------------------------

    def join(self, token: Token, join: Join) -> None:
        """JoinGroup."""
        try:
            self._check(join)
            self._join(token, join)
        except LogboomError as error:
            self._context.reply(token, JoinReply(error=error, member_id=join.member_id))

    def _check(self, join: Join) -> None:
        limits = self._context.limits
        self._context.check_group_id(join.group_id)
        if not limits.session_timeout_ms_min <= join.session_timeout_ms <= limits.session_timeout_ms_max:
            raise InvalidSessionTimeoutError(
                f"the session timeout is {join.session_timeout_ms} ms; this broker accepts "
                f"{limits.session_timeout_ms_min} to {limits.session_timeout_ms_max} ms"
            )
        names = [join.instance_id or "", join.protocol_type, *(protocol.name for protocol in join.protocols)]
        if any(len(name.encode()) > limits.name_bytes_max for name in names):
            raise InvalidRequestError(f"names in a group have at most {limits.name_bytes_max} bytes")
        if sum(len(protocol.metadata) for protocol in join.protocols) > limits.member_metadata_bytes_max:
            raise PolicyViolationError(
                f"a member's metadata has at most {limits.member_metadata_bytes_max} bytes",
                limit="broker.groups.member_metadata_max_bytes",
            )

    def _join(self, token: Token, join: Join) -> None:
        is_new = join.member_id == NO_MEMBER
        try:
            group = self._context.find_or_create(join.group_id) if is_new else self._context.find(join.group_id)
        except GroupIdNotFoundError as error:
            raise UnknownMemberError(str(error)) from None
        self._admit(group, join)
        if not group.supports(join.protocol_type, (protocol.name for protocol in join.protocols)):
            raise InconsistentGroupProtocolError("the group's members and this one have no protocol in common")
        if not is_new:
            self._join_known(token, join, group)
        elif join.instance_id is not None:
            self._join_static(token, join, group)
        elif join.member_id_required:
            self._give_id(token, join, group)
        else:
            self._add(token, join, group, _new_member_id(join))

    def _admit(self, group: Group, join: Join) -> None:
        """Raises GroupMaxSizeReachedError in a full group; a member that no longer fits is removed (KIP-389)."""
        size_max = self._context.limits.group_members_max
        member = group.members.get(join.member_id)
        if join.member_id == NO_MEMBER and join.instance_id in group.static_ids:
            return  # it replaces the member with the same instance id
        if member is None:
            fits = len(group.members) < size_max
            fits &= join.member_id != NO_MEMBER or len(group.pending_joins) < size_max
        else:
            # Where the limit was lowered, the last members to join the next rebalance are removed.
            late = group.is_in(State.PREPARING_REBALANCE) and member.join_token is None
            fits = not late or group.awaiting_join_count < size_max
        if fits:
            return
        if member is not None:
            self._rebalance.expel(group, join.member_id, GroupMaxSizeReachedError("the group is full"))
            self._rebalance.after_removal(group, "the group has more members than allowed", 1)
        raise GroupMaxSizeReachedError(
            f"the group has {size_max} members, as many as allowed", limit="broker.groups.members_max"
        )

    def _give_id(self, token: Token, join: Join, group: Group) -> None:
        member_id = _new_member_id(join)
        group.pending_joins.add(member_id)
        self._context.set_timer(join.session_timeout_ms, HEARTBEAT, group.group_id, member_id)
        error = MemberIdRequiredError("join again with the member id of this answer")
        self._context.reply(token, JoinReply(error=error, member_id=member_id))

    def _add(self, token: Token, join: Join, group: Group, member_id: str) -> None:
        member = Member(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=_cut(join.client_id, self._context.limits.name_bytes_max),
            client_host=_cut(join.client_host, self._context.limits.name_bytes_max),
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            protocols=_distinct(join.protocols),
            join_token=token,
            is_new=True,
        )
        if group.is_in(State.PREPARING_REBALANCE) and group.previous_state is State.EMPTY:
            group.new_member_added = True
        group.add(member, join.protocol_type)
        # It has no id to send heartbeats with until it is answered. If its client disconnects meanwhile and joins as
        # another new member, this timeout removes the one that is left behind.
        self._rebalance.expect_heartbeat(group, member, self._context.limits.new_member_join_timeout_ms)
        self._rebalance.prepare_or_complete(group, f"member {member_id} joined: {join.reason or 'no reason given'}")

    def _join_known(self, token: Token, join: Join, group: Group) -> None:
        if join.member_id in group.pending_joins:
            if join.instance_id is not None:
                raise UnknownMemberError("the id was given to a member without an instance id")
            self._add(token, join, group, join.member_id)
            return
        member = group.validate(join.member_id, join.instance_id)
        if group.is_in(State.PREPARING_REBALANCE):
            self._rejoin(token, join, group, member, "a member joined again")
        elif member.protocols != _distinct(join.protocols):
            self._rejoin(token, join, group, member, f"member {member.member_id} changed its metadata")
        elif group.is_in(State.STABLE) and group.leader == member.member_id:
            # The leader joins again for changes that its metadata does not show, such as new partitions of a stream.
            self._rejoin(token, join, group, member, f"the leader joined again: {join.reason or 'no reason given'}")
        else:
            # Nothing changed: the answer to its last join was lost, perhaps. Repeat it.
            self._context.reply(token, self._rebalance.joined(group, member))

    def _rejoin(self, token: Token, join: Join, group: Group, member: Member, reason: str) -> None:
        group.update(member, _distinct(join.protocols), join.session_timeout_ms, join.rebalance_timeout_ms)
        self._hold_join(group, member, token)
        self._rebalance.prepare_or_complete(group, reason)

    def _hold_join(self, group: Group, member: Member, token: Token) -> None:
        replaced = group.await_join(member, token)
        error = RebalanceInProgressError("the member joined again on another connection")
        self._context.reply(replaced, JoinReply(error=error, member_id=member.member_id))

    # --- static members (KIP-345) -------------------------------------------------------------------------------

    def _join_static(self, token: Token, join: Join, group: Group) -> None:
        """A join with an instance id and no member id: a new member, or one that was restarted."""
        if join.instance_id not in group.static_ids:
            self._add(token, join, group, _new_member_id(join))
        elif group.group_id in self._pending_static_writes:
            self._pending_static_writes[group.group_id].append((token, join))
        else:
            self._replace_static(token, join, group)

    def _replace_static(self, token: Token, join: Join, group: Group) -> None:
        assert join.instance_id is not None
        old_id, new_id, leader = group.static_ids[join.instance_id], _new_member_id(join), group.leader
        member = self._rename(group, join.instance_id, new_id)
        before = (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms)
        group.update(member, _distinct(join.protocols), join.session_timeout_ms, join.rebalance_timeout_ms)
        self._hold_join(group, member, token)
        self._rebalance.expect_heartbeat(group, member)
        self._context.note("static member returned", group, instance=join.instance_id, member=new_id)
        if group.is_in(State.STABLE) and group.select_protocol() == group.protocol_name:
            # It takes over the old assignment, so the other members need not rebalance.
            self._pending_static_writes[group.group_id] = []
            assignments = {m.member_id: m.assignment for m in group.members.values()}
            undo = _Undo(old_id, leader or "", *before)
            done = partial(self._static_stored, group, group.generation, member, undo, join)
            self._rebalance.store(group, assignments, done)
        elif group.is_in(State.STABLE, State.COMPLETING_REBALANCE):
            # The leader may be computing an assignment that names the old id.
            self._rebalance.prepare(group, f"static member {join.instance_id} returned")
        else:
            self._rebalance.prepare_or_complete(group, f"static member {join.instance_id} returned")

    def _rename(self, group: Group, instance_id: str, new_id: str) -> Member:
        """Give an instance id's member a new id; held requests under the old id are answered FENCED_INSTANCE_ID."""
        old_id = group.static_ids[instance_id]
        member = group.members[old_id]
        fenced = FencedInstanceIdError(f"instance id {instance_id!r} was taken by another process")
        self._rebalance.answer_join(group, member, JoinReply(error=fenced, member_id=old_id))
        self._rebalance.answer_sync(member, SyncReply(error=fenced))
        self._context.cancel_timer(HEARTBEAT, group.group_id, old_id)
        return group.rename_static(instance_id, new_id)

    def _static_stored(
        self,
        group: Group,
        generation: int,
        member: Member,
        undo: "_Undo",
        join: Join,
        error: LogboomError | None,
    ) -> None:
        waiting = self._pending_static_writes.pop(group.group_id)
        unchanged = group.is_in(State.STABLE) and group.generation == generation
        if unchanged and group.members.get(member.member_id) is member:
            # Otherwise a rebalance began or the member left, and its join was or will be answered there.
            if error is None:
                self._answer_returned(group, member, undo, join)
            else:
                assert join.instance_id is not None
                failed = JoinReply(error=metadata_store_error(error))
                self._rebalance.answer_join(group, member, failed)
                self._rename(group, join.instance_id, undo.member_id)
                group.update(member, undo.protocols, undo.session_timeout_ms, undo.rebalance_timeout_ms)
                self._rebalance.expect_heartbeat(group, member)
        for token, later in waiting:
            self.join(token, later)

    def _answer_returned(self, group: Group, member: Member, undo: "_Undo", join: Join) -> None:
        answer = self._rebalance.joined(group, member)
        if join.can_skip_assignment:
            answer = replace(answer, skip_assignment=group.leader == member.member_id)
        else:
            # A client older than KIP-814 that found itself leader would assign again, so it gets the old leader's id.
            answer = replace(answer, leader=undo.leader, members=())
        self._rebalance.answer_join(group, member, answer)

    # --- sync ---------------------------------------------------------------------------------------------------

    def sync(self, token: Token, sync: Sync) -> None:
        """SyncGroup."""
        try:
            self._sync(token, sync)
        except GroupIdNotFoundError as error:
            self._context.reply(token, SyncReply(error=UnknownMemberError(str(error))))
        except LogboomError as error:
            self._context.reply(token, SyncReply(error=error))

    def _sync(self, token: Token, sync: Sync) -> None:
        self._context.check_group_id(sync.group_id)
        group = self._context.find(sync.group_id)
        member = group.validate(sync.member_id, sync.instance_id)
        self._check_generation(group, sync.generation)
        wrong_type = sync.protocol_type is not None and sync.protocol_type != group.protocol_type
        if wrong_type or (sync.protocol_name is not None and sync.protocol_name != group.protocol_name):
            raise InconsistentGroupProtocolError("the request names another protocol than the group's")
        if group.is_in(State.PREPARING_REBALANCE):
            raise RebalanceInProgressError("the group is being rebalanced")
        self._rebalance.synced(group, member.member_id)
        if group.is_in(State.STABLE):
            self._context.reply(token, self._rebalance.assigned(group, member))
            return
        replaced, member.sync_token = member.sync_token, token
        again = RebalanceInProgressError("the member synced again on another connection")
        self._context.reply(replaced, SyncReply(error=again))
        if group.leader == member.member_id and group.assigned_generation != group.generation:
            group.assigned_generation = group.generation
            known = {member_id: run for member_id, run in sync.assignments if member_id in group.members}
            self._rebalance.store_assignment(group, known)

    @staticmethod
    def _check_generation(group: Group, generation: int) -> None:
        if generation != group.generation:
            raise IllegalGenerationError(f"generation {generation} is not the current one")

    # --- heartbeat ----------------------------------------------------------------------------------------------

    def heartbeat(self, token: Token, heartbeat: Heartbeat) -> None:
        """Heartbeat."""
        error: LogboomError | None = None
        try:
            self._heartbeat(heartbeat)
        except GroupIdNotFoundError as missing:
            error = UnknownMemberError(str(missing))
        except LogboomError as failure:
            error = failure
        self._context.reply(token, HeartbeatReply(error=error))

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        self._context.check_group_id(heartbeat.group_id)
        group = self._context.find(heartbeat.group_id)
        member = group.validate(heartbeat.member_id, heartbeat.instance_id)
        self._check_generation(group, heartbeat.generation)
        self._rebalance.expect_heartbeat(group, member)
        if group.is_in(State.PREPARING_REBALANCE):
            raise RebalanceInProgressError("the group is being rebalanced")

    # --- leave --------------------------------------------------------------------------------------------------

    def leave(self, token: Token, leave: Leave) -> None:
        """LeaveGroup."""
        try:
            self._context.check_group_id(leave.group_id)
            group = self._context.find(leave.group_id)
        except GroupIdNotFoundError as error:
            missing = UnknownMemberError(str(error))
            self._context.reply(token, LeaveReply(results=tuple(missing for _ in leave.leavers)))
            return
        except LogboomError as error:
            self._context.reply(token, LeaveReply(error=error))
            return
        before = len(group.members)
        results = tuple(self._leave_one(group, leaver) for leaver in leave.leavers)
        self._rebalance.after_removal(group, "members left", before - len(group.members))
        self._context.reply_after_writes(token, LeaveReply(results=results))

    def _leave_one(self, group: Group, leaver: Leaver) -> LogboomError | None:
        member_id = leaver.member_id
        if member_id == NO_MEMBER:
            known = None if leaver.instance_id is None else group.static_ids.get(leaver.instance_id)
            if known is None:
                return UnknownMemberError(f"no member with instance id {leaver.instance_id!r}")
            member_id = known
        elif member_id not in group.pending_joins:
            try:
                group.validate(member_id, leaver.instance_id)
            except GroupError as error:
                return error
        self._rebalance.expel(group, member_id, UnknownMemberError("the member left"))
        self._context.note("member left", group, member=member_id, reason=leaver.reason or "no reason given")
        return None

    # --- time ---------------------------------------------------------------------------------------------------

    def session_ended(self, group: Group, member_id: str) -> None:
        """No heartbeat came in time, or no join with a pending member id."""
        member = group.members.get(member_id)
        waits = member is not None and (member.join_token is not None or member.sync_token is not None)
        if waits and member is not None and not member.is_new:
            return  # it waits for this broker's answer, which restarts its session
        if member is None and member_id not in group.pending_joins:
            return
        self._rebalance.expel(group, member_id, UnknownMemberError("the session ended"))
        if member is not None:
            self._context.note("member failed", group, member=member_id)
        self._rebalance.after_removal(group, f"the session of {member_id} ended", int(member is not None))


class _Undo(NamedTuple):
    """A static member as it was before another process joined with its instance id."""

    member_id: str
    leader: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int


def _new_member_id(join: Join) -> str:
    """As Kafka forms it: a readable prefix for logs, and a unique part."""
    return f"{_cut(join.instance_id or join.client_id, 255)}-{join.unique_id}"


def _cut(text: str, bytes_max: int) -> str:
    return text.encode()[:bytes_max].decode(errors="ignore")


def _distinct(protocols: tuple[Protocol, ...]) -> tuple[Protocol, ...]:
    """The first protocol of each name."""
    return tuple({protocol.name: protocol for protocol in reversed(protocols)}.values())[::-1]
