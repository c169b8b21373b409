"""Parts of a plan: what leads to some of its outputs. Knows the graph alone."""

from collections.abc import Iterable

import msgspec

from logboom.pipeline.plan.nodes import Plan, Sink


def upstream(plan: Plan, edges: Iterable[str], sinks: Iterable[Sink]) -> Plan:
    """The plan with these sinks alone, and with nothing that does not lead to these edges. Its tests are left out."""
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


def unused_name(plan: Plan, wish: str) -> str:
    """A name that no node of the plan has."""
    taken = {node.name for node in plan.nodes()}
    return next(
        name for name in (wish, *(f"{wish}_{number}" for number in range(2, len(taken) + 3))) if name not in taken
    )
