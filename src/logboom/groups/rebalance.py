"""The steps from one generation of a group to the next, shared by joins, syncs, leaves and timeouts.

Follows Kafka's classic protocol (GroupMetadataManager of Apache Kafka 4.0; KIP-62, 134, 345, 389, 394). Effects and
timers go through the context.
"""

from functools import partial

from logboom.base.errors import LogboomError
from logboom.groups.context import CoordinatorContext, OnStored
from logboom.groups.errors import (
    GroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberError,
    metadata_store_error,
)
from logboom.groups.events import JoinReply, SyncReply
from logboom.groups.group import Group, Member, State
from logboom.groups.records import LogRecord, encode_group_key, encode_group_value

HEARTBEAT = "heartbeat"
"""Timer of a member's session, or of a pending member id."""
JOIN = "join"
"""Timer of the join phase, or of the initial delay."""
SYNC = "sync"
"""Timer of the sync phase."""


class Rebalance:
    """Moves groups through the phases of a rebalance. One per coordinator."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._initial_delays: dict[str, tuple[int, int]] = {}
        """Groups in their initial delay: how long the current timer runs, and by how much more it may be extended."""

    # --- answers ------------------------------------------------------------------------------------------------

    def answer_join(self, group: Group, member: Member, answer: JoinReply) -> None:
        """Answer the held join of a member, if there is one."""
        self._context.reply(group.take_join_token(member), answer)

    def answer_sync(self, member: Member, answer: SyncReply) -> bool:
        """Answer the held sync of a member; whether there was one."""
        token, member.sync_token = member.sync_token, None
        self._context.reply(token, answer)
        return token is not None

    def joined(self, group: Group, member: Member) -> JoinReply:
        """The answer to a join, for the current generation."""
        return JoinReply(
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
            member_id=member.member_id,
            members=group.member_list() if group.leader == member.member_id else (),
        )

    def expect_heartbeat(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Restart a member's session timeout."""
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._context.set_timer(delay_ms, HEARTBEAT, group.group_id, member.member_id)

    # --- leaving ------------------------------------------------------------------------------------------------

    def expel(self, group: Group, member_id: str, error: GroupError) -> None:
        """Remove a member or a pending id; its held requests are answered with `error`."""
        member = group.members.get(member_id)
        if member is not None:
            self.answer_join(group, member, JoinReply(error=error))
            self.answer_sync(member, SyncReply(error=error))
        group.remove(member_id)
        self._context.cancel_timer(HEARTBEAT, group.group_id, member_id)

    def after_removal(self, group: Group, reason: str, members_gone: int) -> None:
        """Members or pending ids were removed: rebalance the rest, or complete the join phase that waited for them."""
        if group.is_in(State.PREPARING_REBALANCE):
            self._complete_if_all_joined(group)
        elif members_gone > 0:
            self.prepare(group, reason)

    # --- the join phase -----------------------------------------------------------------------------------------

    def prepare_or_complete(self, group: Group, reason: str) -> None:
        """A member joined or changed: start a rebalance, or complete the join phase that waited for it."""
        if group.is_in(State.PREPARING_REBALANCE):
            self._complete_if_all_joined(group)
        else:
            self.prepare(group, reason)

    def prepare(self, group: Group, reason: str) -> None:
        """Ask all members to join again."""
        context = self._context
        if group.is_in(State.COMPLETING_REBALANCE):
            self.fail_assignment(group, RebalanceInProgressError(reason))
        group.pending_syncs.clear()
        context.cancel_timer(SYNC, group.group_id)
        initial = group.is_in(State.EMPTY)
        group.move_to(State.PREPARING_REBALANCE, context.now.wall_ms)
        context.note("rebalance started", group, generation=group.generation, reason=reason)
        if initial:
            self._start_initial_delay(group)
        elif group.all_joined:
            self.complete_join(group)
        else:
            context.set_timer(group.rebalance_timeout_ms, JOIN, group.group_id)

    def _complete_if_all_joined(self, group: Group) -> None:
        """Not during the initial delay, which runs to its end because more members may be starting."""
        if group.all_joined and group.previous_state is not State.EMPTY:
            self.complete_join(group)

    def _start_initial_delay(self, group: Group) -> None:
        """KIP-134: an empty group waits for more members, in all at most the group's rebalance timeout."""
        delay_ms = self._context.limits.initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        self._continue_initial_delay(group, delay_ms, remaining_ms)

    def _continue_initial_delay(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        group.new_member_added = False
        self._initial_delays[group.group_id] = (delay_ms, remaining_ms)
        self._context.set_timer(delay_ms, JOIN, group.group_id)

    def join_timed_out(self, group: Group) -> None:
        """The timer of the join phase, or of the initial delay, expired."""
        if not group.is_in(State.PREPARING_REBALANCE):
            return
        delay_ms, remaining_ms = self._initial_delays.get(group.group_id, (0, 0))
        if group.new_member_added and remaining_ms > 0:
            next_ms = min(self._context.limits.initial_rebalance_delay_ms, remaining_ms)
            self._continue_initial_delay(group, next_ms, max(remaining_ms - delay_ms, 0))
        else:
            self.complete_join(group)

    def complete_join(self, group: Group) -> None:
        """End the join phase: begin the next generation with the members that joined."""
        context = self._context
        context.cancel_timer(JOIN, group.group_id)
        self._initial_delays.pop(group.group_id, None)
        # A static member (KIP-345) may be restarting: it stays until its session times out.
        for member in [m for m in group.members.values() if m.join_token is None and not m.is_static]:
            self.expel(group, member.member_id, UnknownMemberError("did not join in time"))
            context.note("member did not join in time", group, member=member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has joined yet: wait for them, or for their sessions to expire.
            context.set_timer(group.rebalance_timeout_ms, JOIN, group.group_id)
            return
        group.start_generation(context.now.wall_ms)
        if group.is_in(State.EMPTY):
            context.note("group is empty", group, generation=group.generation)
            self.store(group, {}, lambda _error: None)
            return
        self._start_sync_phase(group)

    def _start_sync_phase(self, group: Group) -> None:
        context = self._context
        context.note("generation started", group, generation=group.generation, members=len(group.members))
        for member in group.members.values():
            self.answer_join(group, member, self.joined(group, member))
            self.expect_heartbeat(group, member)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        context.set_timer(group.rebalance_timeout_ms, SYNC, group.group_id)

    # --- the sync phase -----------------------------------------------------------------------------------------

    def synced(self, group: Group, member_id: str) -> None:
        """A member has sent its SyncGroup."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._context.cancel_timer(SYNC, group.group_id)

    def sync_timed_out(self, group: Group) -> None:
        """The timer of the sync phase expired: remove the members that joined but did not sync."""
        if not group.is_in(State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_syncs:
            return
        late = sorted(group.pending_syncs)
        for member_id in late:
            self.expel(group, member_id, UnknownMemberError("did not sync in time"))
        self.prepare(group, f"{len(late)} members did not sync in time")

    def store_assignment(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Write the leader's assignment; the members are answered once it is committed."""
        self.store(group, assignments, partial(self._assignment_stored, group, group.generation, assignments))

    def _assignment_stored(
        self, group: Group, generation: int, assignments: dict[str, bytes], error: LogboomError | None
    ) -> None:
        if not group.is_in(State.COMPLETING_REBALANCE) or group.generation != generation:
            return  # another rebalance began meanwhile and has answered the held syncs
        if error is not None:
            self.fail_assignment(group, metadata_store_error(error))
            self.prepare(group, "the assignment could not be stored")
            return
        group.move_to(State.STABLE, self._context.now.wall_ms)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if self.answer_sync(member, self.assigned(group, member)):
                self.expect_heartbeat(group, member)

    def assigned(self, group: Group, member: Member) -> SyncReply:
        """The answer to a sync, with the member's assignment."""
        return SyncReply(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )

    def fail_assignment(self, group: Group, error: LogboomError) -> None:
        """Answer all held syncs with `error`: this generation gets no assignment."""
        for member in group.members.values():
            member.assignment = b""
            if self.answer_sync(member, SyncReply(error=error)):
                self.expect_heartbeat(group, member)

    # --- both phases --------------------------------------------------------------------------------------------

    def store(self, group: Group, assignments: dict[str, bytes], stored: OnStored) -> None:
        """Write the group's metadata as it is now, with these assignments."""
        value = encode_group_value(group.as_stored(assignments))

        def done(error: LogboomError | None) -> None:
            if error is None:
                group.stored = value
            stored(error)

        self._context.persist(group, (LogRecord(encode_group_key(group.group_id), value),), done)

    def restart_timers(self, group: Group) -> None:
        """Give members and phases their whole time again: nobody could reach the coordinator for a while."""
        for member in group.members.values():
            if not member.is_new:
                self.expect_heartbeat(group, member)
        if group.is_in(State.PREPARING_REBALANCE) and group.group_id not in self._initial_delays:
            self._context.set_timer(group.rebalance_timeout_ms, JOIN, group.group_id)
        if group.pending_syncs:
            self._context.set_timer(group.rebalance_timeout_ms, SYNC, group.group_id)

    def resign(self, group: Group) -> None:
        """Answer all held requests of a group NOT_COORDINATOR."""
        error = NotCoordinatorError("this broker does not coordinate the group any more")
        for member in group.members.values():
            self.answer_join(group, member, JoinReply(error=error, member_id=member.member_id))
            self.answer_sync(member, SyncReply(error=error))
