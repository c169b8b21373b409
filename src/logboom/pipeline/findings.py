"""The results of compiling a pipeline's file so far: problems and warnings with their lines, and SQL that is still to
be checked.

`Findings` belongs to the whole file. A `Part` is one place in the file; transforms, formats and sinks report to it.
Nothing is raised before the whole file has been checked. This module must not know what any part means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from logboom.base.settings import (
    KeyPath,
    Problem,
    Settings,
    SettingsError,
    YamlDocument,
    dotted,
    load,
    nearest,
    unknown_key,
)
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, Column, Expression, PlanWarning

Model = TypeVar("Model", bound=Settings)

_STAND_INS: Final = ("x", 1, True, ["x"], {"x": "x"}, "1m", "1MiB")
"""Sample values: every key accepts at least one of them."""
_FIRST_KEY: Final = re.compile(r"[^.\[]*")
_ITEM: Final = re.compile(r"(?P<key>[^.\[]+)(?:\[(?P<index>\d+)\]|\.(?P<name>[^.\[]+))")
"""A place inside an item of a list or of a group."""


class Findings:
    """Collects the problems and warnings of one file."""

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        self.patterns: Mapping[str, str] = {}
        """The file's own names for `%{NAME}`; set as soon as they are known."""
        self.problems: list[Problem] = []
        self.warnings: list[PlanWarning] = []
        self.expressions: list[Expression] = []
        self._faulty_keys: dict[KeyPath, set[str | int]] = {}
        """The faulty keys of each part that has any, by the part's place, and the faulty items of its lists and
        groups, by theirs."""

    def line(self, path: KeyPath) -> int:
        """The line of a value, or of the nearest enclosing value."""
        return self.document.line_of(path) or 1

    def problem(self, path: KeyPath, message: str) -> None:
        """Report something that prevents the pipeline from running."""
        if not self._follows_from_fault(path, message):
            self.problems.append(self.document.problem(path, message))

    def warning(self, path: KeyPath, message: str) -> None:
        """Report something that runs but is probably a mistake."""
        self.warnings.append(
            PlanWarning(
                where=dotted(path), line=self.document.line_of(path), message=message, file=self.document.file_of(path)
            )
        )

    def expression(self, path: KeyPath, expression: Expression) -> None:
        """Add SQL to be checked."""
        if not self._follows_from_fault(path, ""):
            self.expressions.append(expression)

    def is_sound(self, path: KeyPath) -> bool:
        """Whether the result of `typed_part` for this place has no substituted values, so that a node may be made of
        it."""
        return path not in self._faulty_keys

    def part(self, model: type[Model], path: KeyPath, value: Any) -> Model | None:
        """A part of the document as its model; None, with its problems reported, if it has any."""
        try:
            return load(model, self._document_of(path, value))
        except SettingsError as error:
            self._report(path, error)
            return None

    def _part_or_rest(self, model: type[Model], path: KeyPath, value: Mapping[str, Any]) -> Model | None:
        """A part as its model. Faulty keys are reported and get substitute values, so that the rest of the part is
        checked too."""
        try:
            return load(model, self._document_of(path, value))
        except SettingsError as error:
            self._report(path, error)
            missing = {name for name, info in model.model_fields.items() if info.is_required() and name not in value}
            faulty = {_first_key(problem) for problem in error.problems} - {""} | missing
            for name, items in _faulty_items(value, error.problems).items():
                rest = {**value, name: _with_sound_items(value[name], items)}
                if _takes(model, rest, name):
                    value = rest
                    faulty.discard(name)
                    self._faulty_keys[*path, name] = items
            self._faulty_keys[path] = set(faulty)
            return _with_stand_ins(model, value, faulty)

    def _document_of(self, path: KeyPath, value: Any) -> YamlDocument:
        depth = len(path)
        lines = {at[depth:]: line for at, line in self.document.lines.items() if at[:depth] == path}
        return YamlDocument({} if value is None else value, self.document.name, lines)

    def _report(self, path: KeyPath, error: SettingsError) -> None:
        for found in error.problems:
            where = ".".join(filter(None, (dotted(path), found.where))).replace(".[", "[")
            line, file = found.line or self.document.line_of(path), self.document.file_of(path)
            self.problems.append(Problem(where, line, found.message, file))

    def _follows_from_fault(self, path: KeyPath, message: str) -> bool:
        """Whether a problem may be caused by a substitute value: it is at a faulty key, or at the part as a whole, or
        names such a key."""
        words = set(re.findall(r"\w+", message))
        for end in range(len(path) + 1):
            faulty = self._faulty_keys.get(path[:end])
            if faulty is not None and (end == len(path) or path[end] in faulty or faulty & words):
                return True
        return False

    def typed_part(
        self, models: Mapping[str, type[Settings]], path: KeyPath, value: Any, key: str = "type"
    ) -> Settings | None:
        """A part whose `key` selects its model. If that key is missing or misspelt, the rest is still checked: by the
        model with the most similar name, else for keys that no model has. Faulty keys get substitute values
        (`is_sound`)."""
        if not isinstance(value, dict):
            self.problem(path, "should be a group of keys and values")
            return None
        kind = value.get(key)
        if kind is None:
            self.problem(path, f"key {key!r} is missing (known here: {', '.join(models)})")
        elif not isinstance(kind, str):
            self.problem((*path, key), f"should be one of {', '.join(models)}")
        elif kind in models:
            return self._part_or_rest(models[kind], path, self._without_foreign_keys(models, path, value, key))
        else:
            self.problem((*path, key), f"unknown {key} {kind!r} ({hint(kind, list(models))})")
            meant = nearest(kind, models)
            if meant is not None:
                return self._part_or_rest(models[meant], path, {**value, key: meant})
        self._unknown_keys(models, path, value)
        return None

    def _without_foreign_keys(
        self, models: Mapping[str, type[Settings]], path: KeyPath, value: Mapping[str, Any], key: str
    ) -> dict[str, Any]:
        """The part without keys that only other models have, each of which is a problem."""
        kind = value[key]
        kept: dict[str, Any] = {}
        for name, given in value.items():
            owners = [other for other, model in models.items() if name in model.model_fields]
            if owners and kind not in owners:
                self.problem((*path, name), f"goes with {key} {' or '.join(owners)}, not with {kind}")
            else:
                kept[name] = given
        return kept

    def _unknown_keys(self, models: Mapping[str, type[Settings]], path: KeyPath, value: Mapping[str, Any]) -> None:
        known = sorted({key for model in models.values() for key in model.model_fields})
        for key in value:
            if key not in known:
                self.problem((*path, key), unknown_key(key, known))


@dataclass(frozen=True, slots=True)
class Part:
    """One place of the file. Keys are relative to it; `()` is the place itself."""

    findings: Findings
    path: KeyPath

    @property
    def line(self) -> int:
        """Its line, or that of the nearest thing around it."""
        return self.findings.line(self.path)

    @property
    def patterns(self) -> Mapping[str, str]:
        """The file's own names for `%{NAME}`."""
        return self.findings.patterns

    def at(self, *keys: str | int) -> Part:
        """A place inside it."""
        return Part(self.findings, (*self.path, *keys))

    def problem(self, key: str | int | KeyPath, message: str) -> None:
        """Report a problem with this key that prevents the pipeline from running."""
        self.findings.problem(self._path(key), message)

    def warning(self, key: str | int | KeyPath, message: str) -> None:
        """Report a value of this key that runs but is probably a mistake."""
        self.findings.warning(self._path(key), message)

    def unknown(self, key: str | int | KeyPath, what: str, word: str, known: Sequence[str]) -> None:
        """The key names a thing (`what`) that does not exist; the message suggests the nearest of `known`."""
        self.problem(key, f"unknown {what} {word!r} ({hint(word, known)})")

    def expression(
        self,
        key: str | int | KeyPath,
        sql: str,
        columns: Sequence[Column] = EVENT_COLUMNS,
        wants: Literal["boolean", "any", "pattern", "timestamp", "int"] = "boolean",
    ) -> int:
        """Register SQL over these columns to be checked after the rest of the file. Returns its line."""
        place = self.findings.document.problem(self._path(key), "")
        line = self.findings.line(self._path(key))
        self.findings.expression(
            self._path(key),
            Expression(sql=sql, columns=tuple(columns), line=line, where=place.where, wants=wants, file=place.file),
        )
        return line

    def _path(self, key: str | int | KeyPath) -> KeyPath:
        return (*self.path, *key) if isinstance(key, tuple) else (*self.path, key)


def _first_key(problem: Problem) -> str:
    """The key of a part that a problem is at or below."""
    found = _FIRST_KEY.match(problem.where)
    assert found is not None
    return found[0]


def _faulty_items(value: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, set[str | int]]:
    """By key of a part, the faulty items of its list or group; only keys of which other items are sound."""
    found: dict[str, set[str | int]] = {}
    for problem in problems:
        item = _ITEM.match(problem.where)
        if item is not None:
            place = item["name"] if item["index"] is None else int(item["index"])
            found.setdefault(item["key"], set()).add(place)
    return {key: items for key, items in found.items() if items < _places_in(value.get(key))}


def _places_in(given: object) -> set[str | int]:
    """The places of a list's items, or the names of a group's."""
    if isinstance(given, list):
        return set(range(len(given)))
    return set(given) if isinstance(given, dict) else set()


def _with_sound_items(given: Any, faulty: set[str | int]) -> Any:
    """A list or group with a sound item in place of each faulty one, so that the others keep their places."""
    if isinstance(given, list):
        sound = next(item for at, item in enumerate(given) if at not in faulty)
        return [sound if at in faulty else item for at, item in enumerate(given)]
    sound = next(item for name, item in given.items() if name not in faulty)
    return {name: sound if name in faulty else item for name, item in given.items()}


def _with_stand_ins(model: type[Model], value: Mapping[str, Any], faulty: set[str]) -> Model | None:
    """The model of a part with valid substitutes for faulty values; None if there are no valid substitutes.

    A key that is a choice of words accepts none of the samples, and is treated as absent.
    """
    given = {name: one for name, one in value.items() if name not in faulty}
    for name in faulty & model.model_fields.keys():
        for stand_in in _STAND_INS:
            if _takes(model, {**given, name: stand_in}, name):
                given[name] = stand_in
                break
    try:
        return load(model, given)
    except SettingsError:
        return None


def _takes(model: type[Model], value: Mapping[str, Any], name: str) -> bool:
    """Whether a model accepts the value of one key, whatever its verdict on the other keys."""
    try:
        load(model, value)
    except SettingsError as error:
        return all(_first_key(problem) != name for problem in error.problems)
    return True


def hint(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word."""
    close = nearest(word, known)
    if close:
        return f"did you mean {close!r}?"
    return f"known here: {', '.join(known)}" if known else "there is none"
