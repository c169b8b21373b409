"""What a compilation has found so far: problems and warnings, each at its line, and parts loaded one by one.

It knows the document and how its parts are loaded. It must not know what any part means.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

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
from logboom.pipeline.plan.nodes import Expression, PlanWarning

Model = TypeVar("Model", bound=Settings)


class Findings:
    """Gathers; nothing is raised before the whole file has been looked at."""

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
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
        self.warnings.append(PlanWarning(where=dotted(path), line=self.document.line_of(path), message=message))

    def part(self, model: type[Model], path: KeyPath, value: Any) -> Model | None:
        """A part of the document as its model, or None and its problems."""
        depth = len(path)
        lines = {at[depth:]: line for at, line in self.document.lines.items() if at[:depth] == path}
        try:
            return load(model, YamlDocument({} if value is None else value, self.document.name, lines))
        except SettingsError as error:
            for found in error.problems:
                where = ".".join(filter(None, (dotted(path), found.where))).replace(".[", "[")
                self.problems.append(Problem(where, found.line or self.document.line_of(path), found.message))
            return None

    def typed_part(self, models: Mapping[str, type[Settings]], path: KeyPath, value: Any) -> Settings | None:
        """A part whose key `type` says which model it is. Where that is missing or misspelt the rest is looked at all
        the same: by the model whose name is nearest, else for keys that no model has."""
        if not isinstance(value, dict):
            self.problem(path, "should be a group of keys and values")
            return None
        kind = value.get("type")
        if kind is None:
            self.problem(path, f"key 'type' is missing (known here: {', '.join(models)})")
            self._unknown_keys(models, path, value)
            return None
        if not isinstance(kind, str):
            self.problem((*path, "type"), f"should be one of {', '.join(models)}")
            self._unknown_keys(models, path, value)
            return None
        model = models.get(kind)
        if model is None:
            self.problem((*path, "type"), f"unknown type {kind!r} ({hint(kind, list(models))})")
            meant = nearest(kind, models)
            if meant is None:
                self._unknown_keys(models, path, value)
                return None
            return self.part(models[meant], path, {**value, "type": meant})
        return self.part(model, path, value)

    def _unknown_keys(self, models: Mapping[str, type[Settings]], path: KeyPath, value: Mapping[str, Any]) -> None:
        known = sorted({key for model in models.values() for key in model.model_fields})
        for key in value:
            if key not in known:
                self.problem((*path, key), unknown_key(key, known))


def hint(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word."""
    close = nearest(word, known)
    if close:
        return f"did you mean {close!r}?"
    return f"known here: {', '.join(known)}" if known else "there is none"
