"""All formats: the content of `FORMATS` in the modules of this package. Must not know any particular one."""

from collections.abc import Mapping
from functools import lru_cache, reduce
from importlib import import_module
from operator import or_
from pkgutil import iter_modules
from typing import Any

import msgspec

from logboom.pipeline.parse import formats
from logboom.pipeline.parse.formats.base import Format, FormatType


@lru_cache(maxsize=1)
def format_types() -> Mapping[str, FormatType[Any]]:
    """The formats by name, sorted.

    >>> "json" in format_types()
    True
    """
    modules = [import_module(f"{formats.__name__}.{module.name}") for module in iter_modules(formats.__path__)]
    found = [kind for module in modules for kind in getattr(module, "FORMATS", ())]
    types = {kind.name: kind for kind in sorted(found, key=lambda kind: str(kind.name))}
    assert len(types) == len(found), "two formats have one name"
    return types


def read_format(tree: object) -> Format:
    """Decode a format's node from plain data in a stored plan; ValueError if the format does not exist."""
    nodes = dict.fromkeys(kind.node for kind in format_types().values())
    any_node: Any = reduce(or_, nodes)
    node: Format = msgspec.convert(tree, type=any_node)
    return node
