"""Parts of a plan: everything that leads to some of its outputs, from all sources or from one. Knows only the graph."""

from collections.abc import Container, Iterable
from typing import TypeVar

import msgspec

from logboom.pipeline.plan.nodes import Plan, Sink, StreamSource, Transform

Reader = TypeVar("Reader", Transform, Sink)


def upstream(plan: Plan, edges: Iterable[str], sinks: Iterable[Sink]) -> Plan:
    """The plan with only these sinks, and only what leads to these edges. Without tests."""
    wanted = set(edges)
    transforms = []
    for node in reversed(plan.transforms):
        if wanted & set(node.outputs):
            transforms.append(node)
            wanted |= set(node.inputs)
    return msgspec.structs.replace(
        plan,
        sources=tuple(source for source in plan.sources if wanted & set(source.outputs)),
        transforms=tuple(reversed(transforms)),
        sinks=tuple(sinks),
        tests=(),
        warnings=(),
    )


def behind(plan: Plan, edge: str) -> set[str]:
    """The outputs that events of an output can reach, including itself."""
    reached = {edge}
    for node in plan.transforms:  # inputs first
        if reached & set(node.inputs):
            reached |= set(node.outputs)
    return reached


def with_entry(plan: Plan, source: StreamSource, entry: Transform) -> Plan:
    """The plan with a single source, whose records become the events of an output: `entry` has the output's name and
    replaces its origin. Nodes that these events do not reach are left out, including sinks."""
    reached = behind(plan, entry.name)

    return msgspec.structs.replace(
        plan,
        sources=(source,),
        transforms=(entry, *_reading(plan.transforms, reached)),
        sinks=_reading(plan.sinks, reached),
        tests=(),
        warnings=(),
    )


def _reading(nodes: Iterable[Reader], edges: Container[str]) -> tuple[Reader, ...]:
    """The nodes that read some of these edges, with only these inputs."""
    found = ((node, tuple(edge for edge in node.inputs if edge in edges)) for node in nodes)
    return tuple(msgspec.structs.replace(node, inputs=inputs) for node, inputs in found if inputs)


def unused_name(plan: Plan, wish: str, besides: Iterable[str] = ()) -> str:
    """A name that no node of the plan has, and that is not in `besides`."""
    taken = {*(node.name for node in plan.nodes()), *besides}
    return next(
        name for name in (wish, *(f"{wish}_{number}" for number in range(2, len(taken) + 3))) if name not in taken
    )
