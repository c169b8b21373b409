"""Generates the reference page of settings (docs/configuration.md) from the models.

Knows how to describe any group of settings; nothing of a particular one.
"""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from logboom.base.descriptions import descriptions
from logboom.base.dynamic import Dynamic, mark_of, wire_name
from logboom.base.settings import format_duration_ms, format_size_bytes
from logboom.base.units import SECOND_MS

_FORMATS: Final = {
    "duration-ms": "duration",
    "duration-s": "duration",
    "size-bytes": "size",
    "address": "address",
    "bootstrap": "addresses",
}
_PLAIN: Final[dict[Any, str]] = {
    int: "integer",
    float: "number",
    bool: "true or false",
    str: "text",
    Path: "path",
    Any: "anything",
}
_KINDS: Final = ("type", "format")
"""Keys that say which of several kinds a group is."""
_BOUNDS: Final = (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than"))


@dataclass(frozen=True, slots=True)
class Section:
    """One configuration file on the page, or one part of a file."""

    title: str
    introduction: str
    model: type[BaseModel]
    path: tuple[str, ...] = ()
    """The path of the model in its file."""
    base: type[BaseModel] | None = None
    """A model with a section of its own: what the section's model has of it is not described again."""


def reference_page(title: str, introduction: str, sections: list[Section | str]) -> str:
    """The whole page as Markdown. A section that is text is taken as it is."""
    lines = [f"# {title}", "", introduction.strip(), ""]
    for section in sections:
        if isinstance(section, str):
            lines += [section.strip(), ""]
        elif section.title:
            lines += [f"## {section.title}", "", section.introduction.strip(), "", *_group(section.model, section.path)]
        else:
            lines += _headed(section.model, section.path, None, section.base)
    return "\n".join(lines).rstrip() + "\n"


def _group(model: type[BaseModel], path: tuple[str, ...], base: type[BaseModel] | None = None) -> list[str]:
    rows, inner = [], []
    elsewhere = base.model_fields if base is not None else {}
    described = descriptions(model)
    for name, info in model.model_fields.items():
        if name in elsewhere:
            continue
        here = (*path, info.alias or name)
        if _group_model(info.annotation) is None and not _is_kind(name, info):
            rows.append(_row(here, info, described.get(name)))
        for group, where in dict.fromkeys(_groups_within(info.annotation, here)):
            text = _headed(group, where, described.get(name) if where == here else None)
            # Several kinds of a group may share a part, which is described once.
            inner += [] if text[0] in inner and "type:" not in text[0] else text
    table = ["| setting | value | default | what it does |", "|---|---|---|---|", *rows, ""] if rows else []
    return table + inner


def _is_kind(name: str, info: FieldInfo) -> bool:
    """Whether the field only names which of several kinds the group is, as the heading does too."""
    return name in _KINDS and get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1


def _headed(
    model: type[BaseModel], path: tuple[str, ...], description: str | None, base: type[BaseModel] | None = None
) -> list[str]:
    kinds = [(name, info) for name, info in model.model_fields.items() if _is_kind(name, info)]
    which = "".join(f", `{name}: {get_args(info.annotation)[0]}`" for name, info in kinds)
    return [f"### {_title(path)}{which}", "", _text(description or model.__doc__), "", *_group(model, path, base)]


def _groups_within(annotation: Any, path: tuple[str, ...]) -> Iterator[tuple[type[BaseModel], tuple[str, ...]]]:
    """The groups that a setting holds (in a list, by name, or as one of several kinds) and their paths."""
    group = _group_model(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if group is not None:
        yield group, path
    elif origin is Annotated:
        yield from _groups_within(arguments[0], path)
    elif origin in (Union, types.UnionType):
        for member in arguments:
            yield from _groups_within(member, path)
    elif origin is dict:
        yield from _groups_within(arguments[1], (*path, "NAME"))
    elif origin in (list, tuple):
        yield from _groups_within(arguments[0], (*path[:-1], f"{path[-1]}[]"))


def _title(path: tuple[str, ...]) -> str:
    return f"`{'.'.join(path)}`"


def _group_model(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _row(path: tuple[str, ...], info: FieldInfo, description: str | None) -> str:
    kind = _kind(info.annotation, info.metadata)
    value = ", ".join([kind, *_bounds(info.metadata, kind)])
    return f"| {_title(path)} | {value} | {_default(info)} | {_text(description)}{_at_run_time(path, info)} |"


def _at_run_time(path: tuple[str, ...], info: FieldInfo) -> str:
    return f" Changes at run time: `{wire_name(path, info)}`." if isinstance(mark_of(info), Dynamic) else ""


def _text(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _kind(annotation: Any, metadata: list[Any]) -> str:
    for note in metadata:
        if isinstance(note, WithJsonSchema) and note.json_schema:
            return _FORMATS.get(str(note.json_schema.get("format")), "text")
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0], list(arguments[1:]))
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        kinds = dict.fromkeys("null" if member is types.NoneType else _kind(member, []) for member in arguments)
        return " or ".join(kinds)
    if origin is dict:
        return f"{_kind(arguments[1], [])} by name"
    if origin in (list, tuple, set, frozenset):
        return f"list: {_kind(arguments[0], [])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    if _group_model(annotation):
        return "group (below)"
    return _PLAIN.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _bounds(metadata: list[Any], kind: str) -> Iterator[str]:
    for attribute, words in _BOUNDS:
        bounds = [getattr(note, attribute) for note in metadata if getattr(note, attribute, None) is not None]
        if bounds:
            bound = max(bounds) if attribute in ("ge", "gt") else min(bounds)
            if bound or kind not in ("size", "duration"):
                yield f"{words} {_quantity(bound, metadata)}"


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.default_factory is not None and not isinstance(info.default_factory, type) and info.annotation is str:
        return "found out"  # from the machine, and so different on each
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined:
        return "`null`"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict | list | tuple | set | frozenset):
        return f"`{', '.join(map(str, value))}`" if value else "none"
    if isinstance(value, BaseModel):
        return "as below"
    return f"`{_quantity(value, info.metadata)}`"


def _quantity(value: Any, metadata: list[Any]) -> str:
    formats = [
        note.json_schema.get("format") for note in metadata if isinstance(note, WithJsonSchema) and note.json_schema
    ]
    match formats:
        case ["duration-ms", *_]:
            return format_duration_ms(value)
        case ["duration-s", *_]:
            return format_duration_ms(round(value * SECOND_MS))
        case ["size-bytes", *_]:
            return format_size_bytes(value)
    return str(value)
