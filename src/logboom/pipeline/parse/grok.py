"""Converts patterns with `%{NAME:field:type}` to RE2 expressions and their fields.

Knows how names are replaced; `grok_library` has the names. Must not know the meaning of a field. Lines are matched by
pyarrow's copy of RE2, masks and single texts by google-re2. Both compile the final expression when a file is checked,
so that neither can refuse it during a batch.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import re2

from logboom.base.settings import nearest
from logboom.pipeline.parse.grok_library import LIBRARY
from logboom.pipeline.parse.groups import has_single_bytes, named_groups, replace_groups

_REFERENCE: Final = re.compile(r"%\{(?P<name>\w+)(?::(?P<field>[^:{}\s]+))?(?::(?P<type>\w+))?\}")
_LOOK_AROUND: Final = re.compile(r"\(\?(?:[=!>]|<[=!])")
_DEPTH_MAX: Final = 32
_LENGTH_MAX: Final = 64 * 1024

FieldType = Literal["string", "int", "float"]


class PatternField(msgspec.Struct, frozen=True):
    """A named group: its name in the expression, the field it fills, and the type of its value."""

    group: str
    name: str
    type: FieldType = "string"


_TYPES: Final[dict[str, FieldType]] = {"string": "string", "int": "int", "float": "float"}


class PatternError(ValueError):
    """Why a pattern is not valid, as the end of a sentence."""


class Expanded(NamedTuple):
    """An RE2 expression, anchored at both ends if `compile_line` made it, and the fields of its groups."""

    expression: str
    fields: tuple[PatternField, ...]


def compile_line(pattern: str, own: Mapping[str, str]) -> Expanded:
    """The expression for a whole line; raises PatternError. A dot matches newlines, too: joined lines are one line."""
    expanded = expand(pattern, own)
    # First check that it is valid: an invalid expression may have no fields only because of that.
    check_re2(expanded.expression)
    if not expanded.fields:
        raise PatternError("names no field; write %{NAME:field} or (?P<field>...)")
    _check_fields(expanded)
    expression = rf"(?s)\A(?:{expanded.expression})\z"
    check_re2(expression)
    _check_arrow(pc.extract_regex, expression)
    return Expanded(expression, expanded.fields)


def expand(pattern: str, own: Mapping[str, str], *, rename: bool = True) -> Expanded:
    """Replace all `%{NAME}`. Raises PatternError.

    `rename`: named groups get generated names, and unnamed groups do not capture (pyarrow only returns named groups).
    This is always done for groups of the library and of `own`.
    """
    fields: list[PatternField] = []
    text = _replace(_rename_groups(pattern, fields) if rename else pattern, own, fields, ())
    if len(text) > _LENGTH_MAX:
        raise PatternError(f"grows to {len(text)} characters; at most {_LENGTH_MAX} are allowed")
    fields.sort(key=lambda field: text.index(f"(?P<{field.group}>"))
    return Expanded(text, tuple(fields))


def _check_fields(expanded: Expanded) -> None:
    """A field may appear several times if a line can only fill one of them; otherwise a value would be lost."""
    names = {field.group: field.name for field in expanded.fields}
    groups = [group for group in named_groups(expanded.expression) if group.name in names]
    for index, group in enumerate(groups):
        for other in groups[:index]:
            if names[group.name] == names[other.name] and not group.excludes(other):
                raise PatternError(
                    f"has the field {names[group.name]!r} twice; only alternatives (a|b) may share a name"
                )


def check_search(expression: str) -> None:
    """Raise PatternError unless both engines can search for the expression in a text, as masks do."""
    check_re2(expression)
    _check_arrow(pc.match_substring_regex, expression)
    names = [group.name for group in named_groups(expression)]
    for name in names:
        if names.count(name) > 1:
            raise PatternError(f"has two groups named {name!r}")


def _check_arrow(function: Callable[[pa.Array, str], pa.Array], expression: str) -> None:
    """Raise PatternError unless this function of Arrow accepts the expression.

    The function gets one row, because Arrow compiles the expression only then.
    """
    try:
        function(pa.array([""], pa.string()), expression)
    except pa.ArrowInvalid as error:
        raise PatternError(
            f"is not an RE2 expression: {str(error).removeprefix('Invalid regular expression: ')}"
        ) from None


def check_re2(expression: str) -> None:
    """Raise PatternError unless google-re2 accepts the expression."""
    if has_single_bytes(expression):
        raise PatternError(r"has \C, a single byte, which is not text")
    try:
        re2.compile(expression, _quiet())
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        if _LOOK_AROUND.search(expression):
            reason = "RE2 does not support look-around and atomic groups"
        raise PatternError(f"is not an RE2 expression: {reason}") from None


def _quiet() -> re2.Options:
    """By default RE2 also writes errors to stderr; the exception has more information."""
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
    return replace_groups(pattern, lambda name: f"(?P<{_new_group(fields, name, None)}>", "(?:")


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
