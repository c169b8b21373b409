"""The kinds of sinks there are: every module of this package that has a `SINK`. Knows no particular one."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from logboom.pipeline import sinks
from logboom.pipeline.plan.nodes import Plan, Sink
from logboom.pipeline.sinks.base import SinkType


@lru_cache(maxsize=1)
def sink_types() -> Mapping[str, SinkType[Any, Any]]:
    """By name, in the order of the names.

    >>> list(sink_types())
    ['console', 'parquet', 'stream']
    """
    modules = [import_module(f"{sinks.__name__}.{module.name}") for module in iter_modules(sinks.__path__)]
    found = [module.SINK for module in modules if hasattr(module, "SINK")]
    return {kind.name: kind for kind in sorted(found, key=lambda kind: kind.name)}


def type_of(sink: Sink) -> SinkType[Any, Any]:
    """The kind that a node of a plan is of."""
    return next(kind for kind in sink_types().values() if kind.node is type(sink))


def read_plan(text: str) -> Plan:
    """A plan from its JSON; ValueError where it is none that this version can read."""
    return Plan.from_json(text, [kind.node for kind in sink_types().values()])
