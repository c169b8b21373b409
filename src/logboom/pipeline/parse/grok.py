"""Patterns with `%{NAME:field:type}`: turned into plain RE2 expressions with their fields.

It knows how names are replaced; the names themselves are in `grok_library`. It must not know what a field means.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import re2

from logboom.base.settings import nearest
from logboom.pipeline.parse.grok_library import LIBRARY
from logboom.pipeline.plan.nodes import FieldType, PatternField

_REFERENCE: Final = re.compile(r"%\{(?P<name>\w+)(?::(?P<field>[^:{}\s]+))?(?::(?P<type>\w+))?\}")
_NAMED_GROUP: Final = re.compile(r"\(\?P?<(?P<name>[A-Za-z_][\w.]*)>")
_LOOK_AROUND: Final = re.compile(r"\(\?(?:[=!>]|<[=!])")
_DEPTH_MAX: Final = 32
_LENGTH_MAX: Final = 64 * 1024
_TYPES: Final[dict[str, FieldType]] = {
    "string": "string",
    "int": "int",
    "integer": "int",
    "float": "float",
    "number": "float",
}


class PatternError(ValueError):
    """Why a pattern cannot be used, as the end of a sentence."""


class Expanded(NamedTuple):
    """An RE2 expression, anchored at both ends where `compile_line` made it, and the fields of its groups."""

    expression: str
    fields: tuple[PatternField, ...]


def compile_line(pattern: str, own: Mapping[str, str]) -> Expanded:
    """The expression for a whole line; raises PatternError. A dot matches line ends too: joined lines are one line."""
    expanded = expand(pattern, own)
    if not expanded.fields:
        raise PatternError("names no field; write %{NAME:field} or (?P<field>...)")
    expression = rf"(?s)\A(?:{expanded.expression})\z"
    check_re2(expression)
    return Expanded(expression, expanded.fields)


def expand(pattern: str, own: Mapping[str, str], *, rename: bool = True) -> Expanded:
    """Replace all `%{NAME}`; `rename` gives each named group a name of its own. Raises PatternError."""
    fields: list[PatternField] = []
    text = _replace(_rename_groups(pattern, fields) if rename else pattern, own, fields, ())
    if len(text) > _LENGTH_MAX:
        raise PatternError(f"grows to {len(text)} characters; at most {_LENGTH_MAX} are allowed")
    fields.sort(key=lambda field: text.index(f"(?P<{field.group}>"))
    return Expanded(text, tuple(fields))


def check_re2(expression: str) -> None:
    """Raise PatternError unless RE2 takes the expression."""
    try:
        re2.compile(expression, _quiet())
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        if _LOOK_AROUND.search(expression):
            reason = "look-around and atomic groups are not part of RE2"
        raise PatternError(f"is no RE2 expression: {reason}") from None


def _quiet() -> re2.Options:
    """RE2 writes to stderr by itself unless told not to; the error we raise says more."""
    options = re2.Options()
    options.log_errors = False
    return options


def _replace(pattern: str, own: Mapping[str, str], fields: list[PatternField], open_names: tuple[str, ...]) -> str:
    if len(open_names) > _DEPTH_MAX:
        raise PatternError(f"%{{{open_names[0]}}} is nested too deeply")

    def reference(match: re.Match[str]) -> str:
        inner = _rename_groups(_lookup(match["name"], own, open_names), fields)
        text = _replace(inner, own, fields, (*open_names, match["name"])) if match["field"] is None else None
        if text is not None:
            return f"(?:{text})"
        group = _new_group(fields, match["field"], match["type"])
        return f"(?P<{group}>{_replace(inner, own, fields, (*open_names, match['name']))})"

    text = _REFERENCE.sub(reference, pattern)
    if "%{" in text:
        raise PatternError(f"has a reference that cannot be read: {text[text.index('%{') :][:40]!r}")
    return text


def _rename_groups(pattern: str, fields: list[PatternField]) -> str:
    return _NAMED_GROUP.sub(lambda match: f"(?P<{_new_group(fields, match['name'], None)}>", pattern)


def _lookup(name: str, own: Mapping[str, str], open_names: tuple[str, ...]) -> str:
    if name in open_names:
        raise PatternError(f"%{{{name}}} contains itself")
    found = own.get(name) or LIBRARY.get(name)
    if found is None:
        close = nearest(name, [*own, *LIBRARY])
        raise PatternError(f"unknown name %{{{name}}}" + (f" (did you mean %{{{close}}}?)" if close else ""))
    return found


def _new_group(fields: list[PatternField], name: str, kind: str | None) -> str:
    known = _TYPES.get(kind or "string")
    if known is None:
        raise PatternError(f"unknown type {kind!r} of field {name!r} (known here: string, int, float)")
    group = f"f{len(fields)}"
    fields.append(PatternField(group=group, name=name, type=known))
    return group
