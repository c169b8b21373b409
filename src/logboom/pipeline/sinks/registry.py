"""All kinds of sinks: every module of this package with a `SINK`. Must not know any particular one."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import msgspec

from logboom.pipeline import sinks
from logboom.pipeline.plan.nodes import Sink
from logboom.pipeline.sinks.base import SinkType


@lru_cache(maxsize=1)
def sink_types() -> Mapping[str, SinkType[Any, Any]]:
    """The kinds by name, sorted.

    >>> "console" in sink_types()
    True
    """
    modules = [import_module(f"{sinks.__name__}.{module.name}") for module in iter_modules(sinks.__path__)]
    found = [module.SINK for module in modules if hasattr(module, "SINK")]
    return {kind.name: kind for kind in sorted(found, key=lambda kind: kind.name)}


def type_of(sink: Sink) -> SinkType[Any, Any]:
    """The kind of a node of a plan."""
    return next(kind for kind in sink_types().values() if kind.node is type(sink))


def read_sink(tree: Mapping[str, Any]) -> Sink:
    """Decode a node of a written plan; ValueError if this version has no such sink."""
    kind = sink_types().get(str(tree.get("type")))
    if kind is None:
        raise ValueError(f"this version of logboom has no sink of type {tree.get('type')!r}")
    node: Sink = msgspec.convert(tree, type=kind.node)
    return node
