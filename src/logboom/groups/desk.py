"""What all parts of the coordinator work with: the groups, the moment, the timers and the effects collected so far.

It keeps the books (who was answered, which write is under way) and decides nothing about groups.
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
"""(what, group id) or (what, group id, member id)."""

Stored: TypeAlias = Callable[[LogboomError | None], None]
"""Told the fate of a write."""


class Desk:
    """One per coordinator. `begin` and `finish` bracket each event; everything else happens between them."""

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits
        self.now = Now(0, 0)
        self.timers: Timers[TimerKey] = Timers()
        self.groups: dict[str, Group] = {}
        self._effects: list[Effect] = []
        self._stored: dict[Ticket, tuple[Group, Stored]] = {}
        self._held: dict[Ticket, tuple[Token, Answer]] = {}
        self._touched: dict[Group, None] = {}  # in order, so that the effects are, too
        self._last_ticket = 0

    def begin(self, now: Now) -> None:
        """Start on an event."""
        assert not self._effects
        self.now = now

    def finish(self) -> list[Effect]:
        """The effects of the event, in the order they must be performed."""
        for group in self._touched:
            self._drop_if_disposable(group)
        self._touched.clear()
        effects, self._effects = self._effects, []
        return effects

    # --- effects ------------------------------------------------------------------------------------------------

    def reply(self, token: Token | None, answer: Answer) -> None:
        """Answer a request; None stands for a request that was answered before."""
        if token is not None:
            self._effects.append(Reply(token, answer))

    def reply_after_writes(self, token: Token, answer: Answer) -> None:
        """Answer once the last write of this event has met its fate, whatever that is; at once where there is none."""
        tickets = [effect.ticket for effect in self._effects if isinstance(effect, Persist)]
        if tickets:
            self._held[tickets[-1]] = (token, answer)
        else:
            self.reply(token, answer)

    def persist(self, group: Group, records: tuple[LogRecord, ...], stored: Stored) -> None:
        """Have records of a group written; `stored` hears of it when they are committed or could not be."""
        self._last_ticket += 1
        ticket = Ticket(self._last_ticket)
        self._stored[ticket] = (group, stored)
        group.writes_under_way += 1
        self._effects.append(Persist(ticket, records))

    def persisted(self, ticket: Ticket, error: LogboomError | None) -> None:
        """Pass on the fate of a write, once."""
        group, stored = self._stored.pop(ticket)
        group.writes_under_way -= 1
        self._touched[group] = None
        stored(error)
        held = self._held.pop(ticket, None)
        if held is not None:
            self.reply(*held)

    def note(self, text: str, group: Group, **details: str | int) -> None:
        """Tell the operator."""
        self._effects.append(Note(text, group.group_id, tuple(details.items())))

    # --- groups -------------------------------------------------------------------------------------------------

    def check_group_id(self, group_id: str) -> None:
        """InvalidGroupIdError for an id no group with members may have."""
        if not group_id or len(group_id.encode()) > self.limits.name_bytes_max:
            raise InvalidGroupIdError(f"a group id has 1 to {self.limits.name_bytes_max} bytes")

    def find(self, group_id: str) -> Group:
        """A group that lives; GroupIdNotFoundError where there is none, retriable while one is being deleted."""
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"no group {group_id!r}")
        if group.state is State.DEAD:
            raise CoordinatorNotAvailableError(f"group {group_id!r} is being deleted")
        self._touched[group] = None
        return group

    def find_or_create(self, group_id: str) -> Group:
        """As `find`, but a group that is not there is made."""
        if group_id not in self.groups:
            if len(self.groups) >= self.limits.groups_max:
                raise PolicyViolationError(
                    f"no more than {self.limits.groups_max} groups fit here", limit="broker.groups.groups_max"
                )
            self.groups[group_id] = Group(group_id, self.now.wall_ms)
        return self.find(group_id)

    def _drop_if_disposable(self, group: Group) -> None:
        """Forget a group of which nothing is left, so that made-up ids cannot fill the memory."""
        if group.is_disposable and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # --- timers -------------------------------------------------------------------------------------------------

    def set_timer(self, delay_ms: int, *key: str) -> None:
        """Run out `delay_ms` from now."""
        self.timers.set(key, self.now.monotonic_ms + delay_ms)

    def cancel_timer(self, *key: str) -> None:
        """Do not run out."""
        self.timers.cancel(key)
