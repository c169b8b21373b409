"""Where a layer sends a row, as a tree of choices over the values of conditions.

A routing transform (`nodes.RoutingTransform`) writes its part of the tree; `layout` joins the parts of transforms that
follow each other; `logboom.pipeline.route.routing` walks the tree with whole columns of values. Nothing here knows
transforms, or what a place means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from logboom.pipeline.plan.sampling import Sampling

TRUE, FALSE, FAILED = 1, 0, 2
"""What a condition's column holds; FAILED if it has no answer because a part of it failed on this record."""
_SHOWN_MAX_CHARS: Final = 200


def failure_text(rule: str, sql: str) -> str:
    """Why an event on which this condition failed is a dead letter; `rule`: its name.

    >>> failure_text("split.large", "CAST(body AS INT)\\n  > 5")
    'the condition of split.large failed on it: CAST(body AS INT) > 5'
    """
    return f"the condition of {rule} failed on it: {shown_sql(sql)}"


def shown_sql(sql: str) -> str:
    """SQL of a file as the reason of a dead letter has it: in one line, which is cut where it is long."""
    shown = " ".join(sql.split())
    return shown if len(shown) <= _SHOWN_MAX_CHARS else f"{shown[: _SHOWN_MAX_CHARS - 1]}…"


@dataclass(frozen=True, slots=True)
class Emit:
    """On to all of these places."""

    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """On by `then`, and counted as a failure of the expression that has this name."""

    rule: str
    then: Outcome


@dataclass(frozen=True, slots=True)
class Choice:
    """On by the value of a condition."""

    column: str
    then: Outcome
    otherwise: Outcome
    failed: Outcome


@dataclass(frozen=True, slots=True)
class Branches:
    """On by every condition that is true, by `unmatched` where none is; the first that failed adds its `failed`, and
    of others that failed only what is Counted is counted."""

    branches: tuple[tuple[str, Outcome], ...]
    unmatched: Outcome
    failed: tuple[Outcome, ...]
    """By branch."""


@dataclass(frozen=True, slots=True)
class Union:
    """On by all of these."""

    parts: tuple[Outcome, ...]


Outcome = Emit | Counted | Choice | Branches | Union


class LayerScope(Protocol):
    """The layer that is being built, as one routing transform in it sees it."""

    def condition(self, sql: str) -> str:
        """The column that will hold the value of a condition over an event; equal conditions share a column."""
        ...

    def sample(self, sampling: Sampling) -> str:
        """The column that will be TRUE for events that the sample keeps; those also get their new weight."""
        ...

    def follow(self, edge: str) -> Outcome:
        """On to every reader of the edge, in this same layer as far as that can be."""
        ...

    def leave(self, edge: str) -> Outcome:
        """On to every reader of the edge, but not in this layer: the readers must see new values of columns."""
        ...

    def dropped(self) -> Outcome:
        """Dropped, and counted under the transform's name."""
        ...

    def dead(self, why: str) -> Outcome:
        """To the transform's dead letters, with this reason."""
        ...

    def failed(self, rule: str, sql: str) -> Outcome:
        """To the transform's dead letters, and counted as a failure of the condition that has this name and SQL."""
        ...


def rules_counted(outcome: Outcome) -> tuple[str, ...]:
    """The names of all expressions whose failures are counted on the way, each once."""
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
