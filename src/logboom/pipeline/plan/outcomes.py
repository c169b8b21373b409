"""The routing of a layer: a tree of choices over the values of conditions.

A routing transform (`nodes.RoutingTransform`) creates its part of the tree; `layout` joins the parts of consecutive
transforms; `logboom.pipeline.route.routing` evaluates the tree on columns of values. Nothing here knows transforms, or
the meaning of a place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from logboom.pipeline.plan.sampling import Sampling

TRUE, FALSE, FAILED = 1, 0, 2
"""Values of a condition's column; FAILED if it has no value because a part of it failed for this record."""
_SHOWN_MAX_CHARS: Final = 200


def failure_text(rule: str, sql: str) -> str:
    """The reason of a dead letter whose condition failed; `rule`: the condition's name.

    >>> failure_text("split.large", "CAST(body AS INT)\\n  > 5")
    'the condition of split.large failed on it: CAST(body AS INT) > 5'
    """
    return f"the condition of {rule} failed on it: {shown_sql(sql)}"


def shown_sql(sql: str) -> str:
    """SQL of a file for the reason of a dead letter: in one line, truncated if it is long."""
    shown = " ".join(sql.split())
    return shown if len(shown) <= _SHOWN_MAX_CHARS else f"{shown[: _SHOWN_MAX_CHARS - 1]}…"


@dataclass(frozen=True, slots=True)
class Emit:
    """Go to all of these places."""

    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """Go on as `then`, and count a failure of the expression with this name."""

    rule: str
    then: Outcome


@dataclass(frozen=True, slots=True)
class Choice:
    """Go on depending on the value of a condition."""

    column: str
    then: Outcome
    otherwise: Outcome
    failed: Outcome


@dataclass(frozen=True, slots=True)
class Branches:
    """Go on by every condition that is true, or by `unmatched` if none is. The first failed condition adds its
    `failed`; other failed ones are only counted."""

    branches: tuple[tuple[str, Outcome], ...]
    unmatched: Outcome
    failed: tuple[Outcome, ...]
    """By branch."""


@dataclass(frozen=True, slots=True)
class Union:
    """Go on by all of these."""

    parts: tuple[Outcome, ...]


Outcome = Emit | Counted | Choice | Branches | Union


class LayerScope(Protocol):
    """The layer that is being built, from the view of one of its routing transforms."""

    def condition(self, sql: str) -> str:
        """The column for the value of a condition on events; equal conditions share a column."""
        ...

    def sample(self, sampling: Sampling) -> str:
        """The column that is TRUE for events which the sample keeps; these also get their new weight."""
        ...

    def follow(self, edge: str) -> Outcome:
        """Go to every reader of the edge, in this layer if possible."""
        ...

    def leave(self, edge: str) -> Outcome:
        """Go to every reader of the edge, but not in this layer: the readers must see changed columns."""
        ...

    def dropped(self) -> Outcome:
        """Dropped, and counted under the transform's name."""
        ...

    def dead(self, why: str) -> Outcome:
        """Go to the transform's dead letters, with this reason."""
        ...

    def failed(self, rule: str, sql: str) -> Outcome:
        """Go to the transform's dead letters, and count a failure of the condition with this name and SQL."""
        ...


def rules_counted(outcome: Outcome) -> tuple[str, ...]:
    """The names of all expressions whose failures are counted in the tree, without duplicates."""
    match outcome:
        case Emit():
            found: tuple[str, ...] = ()
        case Counted(rule, then):
            found = (rule, *rules_counted(then))
        case Choice(_, then, otherwise, failed):
            found = (*rules_counted(failed), *rules_counted(then), *rules_counted(otherwise))
        case Branches(branches, unmatched, failed_each):
            ways = (*failed_each, *(part for _, part in branches), unmatched)
            found = tuple(rule for part in ways for rule in rules_counted(part))
        case Union(parts):
            found = tuple(rule for part in parts for rule in rules_counted(part))
    return tuple(dict.fromkeys(found))
