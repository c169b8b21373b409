"""All kinds of transforms and sinks, as far as reading a stored plan needs them. Knows no particular one."""

from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.sinks.registry import read_sink
from logboom.pipeline.transforms.registry import read_transform


def read_plan(text: str) -> Plan:
    """A plan from its JSON; ValueError if it is not a plan that this version can read."""
    return Plan.from_json(text, read_transform, read_sink)
