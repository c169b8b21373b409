"""Verdicts on expressions that were checked before, stored in a file, so that a second check of the same pipeline
starts no JVM.

Knows expressions and one file. Must not know how a verdict is found. The file's name has a hash of everything that a
verdict depends on (the version of Spark and the checking code), so a new version of either begins with an empty file.
It is a cache: if it cannot be read or written, everything is checked again.
"""

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.plan.nodes import Expression

_CHECKING_MODULES: Final = (
    "config/sqlcheck.py",
    "event/attributes.py",
    "parse/grok.py",
    "plan/names.py",
    "plan/sql_text.py",
    "route/conditions.py",
    "route/values.py",
    "spark/catalyst.py",
    "spark/settings.py",
    "sql/attributes.py",
    "sql/copies.py",
    "sql/expression.py",
    "sql/functions.py",
    "sql/regex.py",
    "sql/review.py",
    "sql/tree.py",
)
_KEPT_MAX: Final = 2_000


class VerdictCache:
    """Verdicts by expression: a sentence about its fault, or None."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"checked-{_version()}.json"
        self._known = self._read()

    def __contains__(self, expression: Expression) -> bool:
        return _key(expression) in self._known

    def __getitem__(self, expression: Expression) -> str | None:
        return self._known[_key(expression)]

    def knows_file(self, text: str) -> bool:
        """Whether a file with this text needs no JVM: all its expressions have verdicts, and it had no fault."""
        return _text_key(text) in self._known

    def keep_file(self, text: str) -> None:
        """Records that a file with this text needs no JVM any more."""
        if not self.knows_file(text):
            self._add({_text_key(text): None})

    def keep(self, verdicts: Mapping[Expression, str | None]) -> None:
        """Adds verdicts, for this object and for later processes."""
        self._add({_key(expression): verdict for expression, verdict in verdicts.items()})

    def _add(self, new: Mapping[str, str | None]) -> None:
        self._known.update(new)
        # Another process may have added verdicts to the file meanwhile: they are kept.
        entries = {**self._read(), **new}
        text = msgspec.json.encode(dict(list(entries.items())[-_KEPT_MAX:]))
        written = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(text)
            written.replace(self._path)

    def _read(self) -> dict[str, str | None]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str | None])
        except (OSError, msgspec.DecodeError):
            return {}


def _key(expression: Expression) -> str:
    """A hash of all that a verdict depends on; the expression's line is not part of it."""
    content = msgspec.json.encode((expression.sql, expression.columns, expression.wants))
    return hashlib.sha256(content).hexdigest()[:32]


def _text_key(text: str) -> str:
    return f"file-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _version() -> str:
    """A hash of Spark's version and of the modules that check."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(importlib.metadata.version("pyspark").encode())
    for name in _CHECKING_MODULES:
        digest.update((package / name).read_bytes())
    return digest.hexdigest()[:16]
