"""Nodes and edges of a plan, and in which column and row each node is drawn. Knows only plans."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.transforms.registry import type_of as transform_type

_ROUNDS: int = 4
"""How often the nodes of each column are sorted by their neighbours."""


class Box(NamedTuple):
    """One node."""

    name: str
    kind: Literal["source", "transform", "sink"]
    type: str
    """As the pipeline's file says it: `stream`, `parse`, `parquet` and so on."""


class Arrow(NamedTuple):
    """An edge from one node to another."""

    start: str
    end: str
    label: str
    """The name of the output, if the node has several."""


class Graph(NamedTuple):
    """Boxes by column from left to right, in each column from top to bottom, and arrows."""

    columns: tuple[tuple[Box, ...], ...]
    arrows: tuple[Arrow, ...]


def graph_of(plan: Plan) -> Graph:
    """Sources on the left; each other node right of all that it reads."""
    boxes: dict[str, Box] = {source.name: Box(source.name, "source", "stream") for source in plan.sources}
    boxes |= {node.name: Box(node.name, "transform", transform_type(node).name) for node in plan.transforms}
    boxes |= {node.name: Box(node.name, "sink", _type_of(node)) for node in plan.sinks}
    owner = {edge: node.name for node in (*plan.sources, *plan.transforms) for edge in node.outputs}
    arrows = tuple(
        Arrow(owner[edge], node.name, edge.removeprefix(owner[edge]).removeprefix("."))
        for node in (*plan.transforms, *plan.sinks)
        for edge in node.inputs
    )
    column = dict.fromkeys((source.name for source in plan.sources), 0)
    for node in (*plan.transforms, *plan.sinks):
        column[node.name] = 1 + max((column[owner[edge]] for edge in node.inputs), default=0)
    width = max(column.values(), default=0) + 1
    names = [[name for name in boxes if column[name] == at] for at in range(width)]
    return Graph(tuple(tuple(boxes[name] for name in part) for part in _ordered(names, arrows)), arrows)


def _type_of(node: Any) -> str:
    tree = msgspec.to_builtins(node)
    return str(tree["type"])


def _ordered(columns: Sequence[list[str]], arrows: Sequence[Arrow]) -> list[list[str]]:
    """Sorts each column by the mean position of the nodes' neighbours, so that few arrows cross."""
    ordered = [list(column) for column in columns]
    for number in range(_ROUNDS):
        place = {name: row for column in ordered for row, name in enumerate(column)}
        for at in range(len(ordered)) if number % 2 == 0 else range(len(ordered) - 1, -1, -1):
            ordered[at].sort(key=lambda name: _mean(name, place, arrows, forwards=number % 2 == 0))
            place |= {name: row for row, name in enumerate(ordered[at])}
    return ordered


def _mean(name: str, place: Mapping[str, int], arrows: Sequence[Arrow], *, forwards: bool) -> float:
    if forwards:
        rows = [place[arrow.start] for arrow in arrows if arrow.end == name]
    else:
        rows = [place[arrow.end] for arrow in arrows if arrow.start == name]
    return sum(rows) / len(rows) if rows else float(place[name])
