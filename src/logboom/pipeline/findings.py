"""What compiling a pipeline's file has found so far: problems and warnings at their lines, and SQL still to be checked.

`Findings` belongs to the whole file; a `Part` is one place in it, which is what the file of a transform, a format or a
sink gets to report to. Nothing is raised before the whole file has been looked at. It must not know what any part
means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

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


class Findings:
    """Collects what is found in one file."""

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        self.patterns: Mapping[str, str] = {}
        """The file's own names for `%{NAME}`; set as soon as they are known."""
        self.problems: list[Problem] = []
        self.warnings: list[PlanWarning] = []
        self.expressions: list[Expression] = []

    def line(self, path: KeyPath) -> int:
        """The line of a value, or of the nearest thing around it."""
        return self.document.line_of(path) or 1

    def problem(self, path: KeyPath, message: str) -> None:
        """Something that keeps the pipeline from running."""
        self.problems.append(self.document.problem(path, message))

    def warning(self, path: KeyPath, message: str) -> None:
        """Something that runs but is hardly meant."""
        self.warnings.append(
            PlanWarning(
                where=dotted(path), line=self.document.line_of(path), message=message, file=self.document.file_of(path)
            )
        )

    def part(self, model: type[Model], path: KeyPath, value: Any) -> Model | None:
        """A part of the document as its model, or None and its problems."""
        depth = len(path)
        lines = {at[depth:]: line for at, line in self.document.lines.items() if at[:depth] == path}
        try:
            return load(model, YamlDocument({} if value is None else value, self.document.name, lines))
        except SettingsError as error:
            for found in error.problems:
                where = ".".join(filter(None, (dotted(path), found.where))).replace(".[", "[")
                line, file = found.line or self.document.line_of(path), self.document.file_of(path)
                self.problems.append(Problem(where, line, found.message, file))
            return None

    def typed_part(
        self, models: Mapping[str, type[Settings]], path: KeyPath, value: Any, key: str = "type"
    ) -> Settings | None:
        """A part whose `key` says which model it is. Where that is missing or misspelt the rest is still checked:
        by the model whose name is nearest, else for keys that no model has."""
        if not isinstance(value, dict):
            self.problem(path, "should be a group of keys and values")
            return None
        kind = value.get(key)
        if kind is None:
            self.problem(path, f"key {key!r} is missing (known here: {', '.join(models)})")
        elif not isinstance(kind, str):
            self.problem((*path, key), f"should be one of {', '.join(models)}")
        elif kind in models:
            return self.part(models[kind], path, self._without_foreign_keys(models, path, value, key))
        else:
            self.problem((*path, key), f"unknown {key} {kind!r} ({hint(kind, list(models))})")
            meant = nearest(kind, models)
            if meant is not None:
                return self.part(models[meant], path, {**value, key: meant})
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
        """Something about this key keeps the pipeline from running."""
        self.findings.problem(self._path(key), message)

    def warning(self, key: str | int | KeyPath, message: str) -> None:
        """Something about this key runs, but is hardly meant."""
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
        """Has SQL over these columns checked, once the whole file has been looked at. Returns its line."""
        place = self.findings.document.problem(self._path(key), "")
        line = self.findings.line(self._path(key))
        self.findings.expressions.append(
            Expression(sql=sql, columns=tuple(columns), line=line, where=place.where, wants=wants, file=place.file)
        )
        return line

    def _path(self, key: str | int | KeyPath) -> KeyPath:
        return (*self.path, *key) if isinstance(key, tuple) else (*self.path, key)


def hint(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word."""
    close = nearest(word, known)
    if close:
        return f"did you mean {close!r}?"
    return f"known here: {', '.join(known)}" if known else "there is none"
