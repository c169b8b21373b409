"""State that the parts of the coordinator share: the groups, the time of the event, the timers, the collected effects.

It tracks which requests are answered and which writes are pending, and decides nothing about groups.
"""

from collections.abc import Callable
from typing import TypeAlias

from logboom.base.errors import LogboomError, PolicyViolationError
from logboom.groups.errors import CoordinatorNotAvailableError, GroupIdNotFoundError, InvalidGroupIdError
from logboom.groups.events import Answer, Effect, Note, Now, Persist, Reply, Ticket, Token
from logboom.groups.group import Group, State
from logboom.groups.limits import GroupLimits
from logboom.groups.records import LogRecord
from logboom.groups.timers import Timers

TimerKey: TypeAlias = tuple[str, ...]
"""(kind, group id) or (kind, group id, member id)."""

OnStored: TypeAlias = Callable[[LogboomError | None], None]
"""Called with the outcome of a write: None once it is committed, else the error."""


class CoordinatorContext:
    """One per coordinator. All other methods are called between the `begin` and the `finish` of an event."""

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits
        self.now = Now(0, 0, 0)
        self.timers: Timers[TimerKey] = Timers()
        self.groups: dict[str, Group] = {}
        self._effects: list[Effect] = []
        self._stored: dict[Ticket, tuple[Group, OnStored]] = {}
        self._held: dict[Ticket, tuple[Token, Answer]] = {}
        self._touched: dict[Group, None] = {}  # in order, so that the effects are, too
        self._last_ticket = 0

    def begin(self, now: Now) -> None:
        """Begin an event that happens at `now`."""
        assert not self._effects
        self.now = now

    def finish(self) -> list[Effect]:
        """End the event: its effects, in the order in which they must be performed."""
        for group in self._touched:
            self._drop_if_disposable(group)
        self._touched.clear()
        effects, self._effects = self._effects, []
        return effects

    # --- effects ------------------------------------------------------------------------------------------------

    def reply(self, token: Token | None, answer: Answer) -> None:
        """Answer a request; nothing happens where `token` is None, because the request was answered before."""
        if token is not None:
            self._effects.append(Reply(token, answer))

    def reply_after_writes(self, token: Token, answer: Answer) -> None:
        """Answer once the outcome of this event's last write is known, good or bad; at once where it wrote nothing."""
        tickets = [effect.ticket for effect in self._effects if isinstance(effect, Persist)]
        if tickets:
            self._held[tickets[-1]] = (token, answer)
        else:
            self.reply(token, answer)

    def persist(self, group: Group, records: tuple[LogRecord, ...], stored: OnStored) -> None:
        """Write records of a group; `stored` is called with the outcome."""
        self._last_ticket += 1
        ticket = Ticket(self._last_ticket)
        self._stored[ticket] = (group, stored)
        group.writes_in_flight += 1
        self._effects.append(Persist(ticket, records))

    def persisted(self, ticket: Ticket, error: LogboomError | None) -> None:
        """The outcome of a write is known: call back, and answer what waited for it."""
        group, stored = self._stored.pop(ticket)
        group.writes_in_flight -= 1
        self._touched[group] = None
        stored(error)
        held = self._held.pop(ticket, None)
        if held is not None:
            self.reply(*held)

    def note(self, text: str, group: Group, **details: str | int) -> None:
        """Write a line to the broker's log."""
        self._effects.append(Note(text, group.group_id, tuple(details.items())))

    # --- groups -------------------------------------------------------------------------------------------------

    def check_group_id(self, group_id: str) -> None:
        """Raises InvalidGroupIdError for an id that a group with members cannot have."""
        if not group_id or len(group_id.encode()) > self.limits.name_bytes_max:
            raise InvalidGroupIdError(f"a group id has 1 to {self.limits.name_bytes_max} bytes")

    def find(self, group_id: str) -> Group:
        """An existing group. Raises GroupIdNotFoundError, or CoordinatorNotAvailableError while it is being deleted."""
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"no group {group_id!r}")
        if group.state is State.DEAD:
            raise CoordinatorNotAvailableError(f"group {group_id!r} is being deleted")
        self._touched[group] = None
        return group

    def find_or_create(self, group_id: str) -> Group:
        """As `find`, but creates a missing group. Raises PolicyViolationError where there are too many."""
        if group_id not in self.groups:
            if len(self.groups) >= self.limits.groups_max:
                raise PolicyViolationError(
                    f"there are {self.limits.groups_max} groups in this partition, as many as allowed",
                    limit="broker.groups.groups_max",
                )
            self.groups[group_id] = Group(group_id, self.now.wall_ms)
        return self.find(group_id)

    def _drop_if_disposable(self, group: Group) -> None:
        """Drop a group that holds nothing, so that requests with invented group ids do not fill the memory."""
        if group.is_disposable and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # --- timers -------------------------------------------------------------------------------------------------

    def set_timer(self, delay_ms: int, *key: str) -> None:
        """Expire `delay_ms` from now; replaces an earlier deadline of the same key."""
        self.timers.set(key, self.now.monotonic_ms + delay_ms)

    def cancel_timer(self, *key: str) -> None:
        """Drop the deadline, if there is one."""
        self.timers.cancel(key)
