"""The kinds of transforms there are: every module of this package that has a `TRANSFORM`. Knows no particular one."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from logboom.pipeline import transforms
from logboom.pipeline.plan.nodes import Transform
from logboom.pipeline.transforms.base import TransformType


@lru_cache(maxsize=1)
def transform_types() -> Mapping[str, TransformType[Any, Any]]:
    """By name, in the order of the names.

    >>> "filter" in transform_types()
    True
    """
    modules = [import_module(f"{transforms.__name__}.{module.name}") for module in iter_modules(transforms.__path__)]
    found = [module.TRANSFORM for module in modules if hasattr(module, "TRANSFORM")]
    return {kind.name: kind for kind in sorted(found, key=lambda kind: str(kind.name))}


def type_of(node: Transform) -> TransformType[Any, Any]:
    """The kind that a node of a plan is of."""
    return next(kind for kind in transform_types().values() if type(node) in kind.nodes.values())


def read_transform(tree: Mapping[str, Any]) -> Transform:
    """A node from its plain data in a written plan; ValueError if this version has no such transform."""
    tag = str(tree.get("type"))
    kind = next((kind for kind in transform_types().values() if tag in kind.nodes), None)
    if kind is None:
        raise ValueError(f"this version of logboom has no transform of type {tag!r}")
    node: Transform = kind.read(tree)
    return node
