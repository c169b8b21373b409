"""Changes to the attributes of one event, given as a decoded JSON object that is changed in place.

An attribute is found by its name as `event.attributes` says; one that is made gets its whole name, dots included, at
the top. Knows only plain data.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from logboom.pipeline.event.attributes import NUMBER
from logboom.pipeline.event.names import spellings

Tree = dict[str, Any]

_number = re.compile(NUMBER.replace("$", r"\Z"))
_whole = re.compile(r"[+-]?[0-9]{1,300}\Z")
_INT_MAX: Final = 2**63
_BOOLEANS: Final = {"true": True, "false": False}


def take(tree: Tree, name: str) -> tuple[bool, Any]:
    """Removes an attribute; whether there was one, and its value."""
    for path in spellings(name):
        holder: Any = tree
        for part in path[:-1]:
            holder = holder.get(part) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and path[-1] in holder:
            return True, holder.pop(path[-1])
    return False, None


@lru_cache(maxsize=256)
def _removal(names: tuple[str, ...]) -> tuple[frozenset[str], "re.Pattern[str] | None"]:
    """Names, and one expression for those with `*`."""
    patterns = [".*".join(map(re.escape, name.split("*"))) for name in names if "*" in name]
    expression = re.compile(f"(?s:{'|'.join(patterns)})") if patterns else None
    return frozenset(name for name in names if "*" not in name), expression


def remove(tree: Tree, names: Sequence[str]) -> bool:
    """Removes all attributes that one of the names stands for, in every spelling and with all that is inside; `*`
    stands for any characters. Whether there were any."""
    plain, pattern = _removal(tuple(names))
    return _removed_below(tree, "", plain, pattern)


def _removed_below(tree: Tree, before: str, plain: frozenset[str], pattern: "re.Pattern[str] | None") -> bool:
    found = False
    for key, value in list(tree.items()):
        path = before + key
        if path in plain or (pattern is not None and pattern.fullmatch(path) is not None):
            del tree[key]
            found = True
        elif type(value) is dict:
            found |= _removed_below(value, f"{path}.", plain, pattern)
    return found


def flatten(tree: Tree, name: str | None) -> bool:
    """Brings what is inside objects to the top, under names joined by dots: inside one attribute, or (None) inside all.
    Whether there was any. A name that is taken gets `_2`, `_3` and so on; lists and empty objects stay."""
    if name is None:
        names = [key for key, value in tree.items() if isinstance(value, dict) and value]
    else:
        there, value = take(tree, name)
        if not there:
            return False
        tree[free_name(tree, name)] = value
        names = [name] if isinstance(value, dict) and value else []
    for key in names:
        for path, leaf in _leaves(tree.pop(key), key):
            tree[free_name(tree, path)] = leaf
    return bool(names)


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        return [(path, value)]
    return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{path}.{key}")]


def free_name(tree: Tree, name: str) -> str:
    """The name, or the first of it with `_2`, `_3` and so on that is not taken."""
    number, free = 1, name
    while free in tree:
        number += 1
        free = f"{name}_{number}"
    return free


def cast(tree: Tree, name: str, convert: Callable[[Any], Any]) -> bool:
    """Converts the value of an attribute where it can be converted; whether it is another one now."""
    for path in spellings(name):
        holder: Any = tree
        for part in path[:-1]:
            holder = holder.get(part) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and path[-1] in holder:
            before = holder[path[-1]]
            after = convert(before)
            holder[path[-1]] = after
            return type(before) is not type(after) or before != after
    return False


# --- conversions: a value that cannot be converted stays what it is ---------------------------------------------


def to_int(value: Any) -> Any:
    """A whole number of 64 bits; fractions are cut off.

    >>> to_int("12"), to_int("1.9"), to_int("n/a")
    (12, 1, 'n/a')
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        text = value.strip()
        if _whole.match(text):
            return int(text) if abs(int(text)) < _INT_MAX else value
        number = float(text) if _number.match(text) else None
    else:
        number = value if isinstance(value, float) else None
    return int(number) if number is not None and abs(number) < _INT_MAX else value


def to_float(value: Any) -> Any:
    """A double.

    >>> to_float("1e3"), to_float(2), to_float("1e999"), to_float(10**400) == 10**400
    (1000.0, 2.0, '1e999', True)
    """
    if not (isinstance(value, str) and _number.match(value.strip())) and not isinstance(value, int):
        return value
    try:
        number = float(value)
    except OverflowError:  # a whole number is exact, whatever its size
        return value
    return value if number in (float("inf"), float("-inf")) else number


def to_boolean(value: Any) -> Any:
    """True or false, of these words in any case and of 1 and 0."""
    if isinstance(value, str):
        return _BOOLEANS.get(value.strip().lower(), value)
    return bool(value) if value in (0, 1) and not isinstance(value, float) else value


def to_text(value: Any) -> Any:
    """A text; what is none as JSON writes it. Null stays null."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def to_json(value: Any) -> Any:
    """What a text that is JSON says; any other text stays."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return value


CASTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "int": to_int,
    "float": to_float,
    "boolean": to_boolean,
    "text": to_text,
    "json": to_json,
}
"""By the name of a type in a pipeline's file."""
