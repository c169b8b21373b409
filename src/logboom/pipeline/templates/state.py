"""What a batch of lines teaches the trees of their groups, and the trees as a table between two batches.

Knows trees and Arrow. Must not know events.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.templates.drain import Template, Tree
from logboom.pipeline.templates.words import words_of

STATE: Final = pa.schema(
    [("group", pa.string()), ("id", pa.string()), ("words", pa.list_(pa.string())), ("count", pa.int64())]
)
_OTHERS: Final = ""
"""The group of all lines whose own group came when there were too many."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """How much is remembered."""

    templates_max: int
    """By group."""
    groups_max: int


class Learnt(NamedTuple):
    """The templates of the lines of a batch."""

    ids: pa.Array
    """By row; null if there is no line."""
    texts: pa.Array
    state: pa.Table
    evicted: int
    """How many templates made room for others."""


def advance(limits: TemplateLimits, state: pa.Table | None, groups: pa.Array, lines: pa.Array) -> Learnt:
    """Learns from lines without their values (null for none), each in the group that `groups` names (null: none)."""
    before = STATE.empty_table() if state is None else state
    rows = pc.indices_nonzero(lines.is_valid())
    if not len(rows):
        nothing = pa.nulls(len(lines), pa.string())
        return Learnt(nothing, nothing, before, 0)
    trees = _trees(limits, before)
    names, texts = pc.fill_null(groups.take(rows), _OTHERS).dictionary_encode(), lines.take(rows).dictionary_encode()
    # Lines that are the same are learnt at once, at the place of the first of them.
    width = len(texts.dictionary)
    pairs = names.indices.to_numpy().astype(np.int64) * width + texts.indices.to_numpy()
    values, first, index, counts = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
    own, words = names.dictionary.to_pylist(), [tuple(words_of(text)) for text in texts.dictionary.to_pylist()]
    found: dict[int, Template] = {}
    for at in np.argsort(first).tolist():
        group, line = divmod(int(values[at]), width)
        found[at] = _tree(limits, trees, own[group]).learn(words[line], int(counts[at]))
    # Which words stay open is known behind the last line, and all lines of a template have the same text.
    ids = pa.array([found[at].id for at in range(len(values))], pa.string())
    templates = pa.array([found[at].text for at in range(len(values))], pa.string())
    evicted = sum(tree.evicted for tree in trees.values())
    spread = _spread(len(lines), rows, pa.array(index))
    return Learnt(ids.take(spread), templates.take(spread), _table(trees), evicted)


def _spread(count: int, rows: pa.Array, index: pa.Array) -> pa.Array:
    """By row, the index of its line; null if there is none."""
    places = np.full(count, -1, np.int64)
    places[rows.to_numpy()] = index.to_numpy()
    return pa.array(places, mask=places < 0)


def _trees(limits: TemplateLimits, state: pa.Table) -> dict[str, Tree]:
    """The trees of a table, by group."""
    templates: dict[str, list[Template]] = {}
    for row in state.to_pylist():
        templates.setdefault(row["group"], []).append(Template(row["id"], tuple(row["words"]), row["count"]))
    most = limits.templates_max
    return {group: Tree(group, most, of_group) for group, of_group in templates.items()}


def _tree(limits: TemplateLimits, trees: dict[str, Tree], group: str) -> Tree:
    name = group if group in trees or len(trees) < limits.groups_max else _OTHERS
    if name not in trees:
        trees[name] = Tree(name, limits.templates_max)
    return trees[name]


def _table(trees: Mapping[str, Tree]) -> pa.Table:
    rows = [
        {"group": group, "id": template.id, "words": template.words, "count": template.count}
        for group, tree in trees.items()
        for template in tree.templates
    ]
    return pa.Table.from_pylist(rows, schema=STATE)
