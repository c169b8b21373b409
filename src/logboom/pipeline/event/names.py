"""How attributes of an event are named and found by name (`attributes.py` says the rule).

Knows only decoded JSON.
"""

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=4096)
def spellings(name: str) -> tuple[tuple[str, ...], ...]:
    """The paths at which an attribute may be in an event, in the order in which they are tried.

    >>> spellings("a.b.c")
    (('a.b.c',), ('a', 'b.c'), ('a', 'b', 'c'))
    """
    parts = name.split(".")
    return tuple((*parts[:depth], ".".join(parts[depth:])) for depth in range(len(parts)))


def find_attribute(tree: Any, name: str) -> Any:
    """The value of an attribute of a decoded event; None if it has none."""
    for path in spellings(name):
        found = tree
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None
