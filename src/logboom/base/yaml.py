"""Parses YAML text to plain data with the line of every value, within bounds on size, depth and expansion of aliases.

Knows YAML's events and nothing of settings. It differs from a plain loader: duplicate keys of a mapping are errors;
every key is text; plain scalars follow YAML 1.2's core schema (`yes` and `2026-01-01` are text); tags are refused;
escapes that are a surrogate pair (`"\\ud83d\\ude00"`, as JSON writes one) are one character, and half of a pair is an
error; and because of the bounds a "billion laughs" document is an error and does not exhaust memory.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from logboom.base.units import MIB

TEXT_MAX_CHARS: Final = 1 * MIB
DEPTH_MAX: Final = 64
VALUES_MAX: Final = 100_000
"""Values in the document, each alias counted as all the values it stands for."""
_TAB: Final = r"found character '\t' that cannot start any token"
"""What the library says of a tab, also of one that indents."""

KeyPath = tuple[str | int, ...]
Substitute = Callable[[KeyPath, str], str]
"""From the place and the text of a value to the text that stands there instead; ValueError with what is wrong."""

_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,4})?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in the text that is no YAML, or is not supported."""

    path: KeyPath
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A parsed text: its data, the line of each value, and its faults."""

    data: Any
    lines: dict[KeyPath, int]
    faults: tuple[Fault, ...]


@dataclass(slots=True)
class _Open:
    """A mapping or sequence whose end was not reached yet."""

    value: dict[str, Any] | list[Any]
    path: KeyPath
    anchor: str | None
    values: int = 1
    key: str | None = None
    merged: list[dict[str, Any]] = field(default_factory=list)


class _UnreadableError(Exception):
    """What stands on or after this line is no YAML, and the library has no word for it."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _AbortError(Exception):
    """The text exceeds a bound or cannot be understood from here on; its fault was noted."""


def read(text: str, substitute: Substitute | None = None) -> Reading:
    """Parse `text`. Never raises because of its content; a syntax error is the last fault.

    `substitute` changes the texts of values, not of keys, before those without quotes are read as numbers or words:
    what it puts in can be no YAML of its own.
    """
    if len(text) > TEXT_MAX_CHARS:
        return Reading(None, {}, (Fault((), 1, f"the text is longer than {TEXT_MAX_CHARS} characters"),))
    reader = _Reader(substitute)
    try:
        for event in _events(text):
            reader.take(event)
    except _AbortError:
        pass
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reader.faults.append(Fault((), mark.line + 1 if mark else 1, _sentence(error)))
    except _UnreadableError as error:
        message = "an escape or a directive from here on has a number that means nothing"
        reader.faults.append(Fault((), error.line, message))
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reader.faults.append(Fault((), line, f"character {chr(error.character)!a} may not stand in YAML"))
    except YAMLError as error:
        reader.faults.append(Fault((), 1, str(error).splitlines()[0]))
    return Reading(reader.data, reader.lines, tuple(reader.faults))


def _events(text: str) -> Iterator[events.Event]:
    line = 1
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            line = event.end_mark.line + 1
            yield event
    except (
        ValueError,
        OverflowError,
        AssertionError,
    ) as error:  # of the library's own, on numbers that it does not expect
        raise _UnreadableError(line) from error


def _sentence(error: MarkedYAMLError) -> str:
    problem = str(error.problem or "this is not YAML")
    if problem == _TAB:
        return "a tab stands where YAML wants spaces: indent with spaces"
    return f"{problem} ({error.context})" if error.context else problem


class _Reader:
    """Builds data out of events, with a stack of its own: recursion would exhaust the interpreter's on a deep text."""

    def __init__(self, substitute: Substitute | None) -> None:
        self._substitute = substitute
        self.data: Any = None
        self.lines: dict[KeyPath, int] = {}
        self.faults: list[Fault] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0
        self._documents = 0

    def take(self, event: events.Event) -> None:
        line = event.start_mark.line + 1
        match event:
            case events.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._abort(line, "one document is expected, and a second one starts here")
            case events.ScalarEvent():
                self._refuse_tag(event, line)
                self._scalar(event, line)
            case events.AliasEvent():
                self._alias(event.anchor, line)
            case events.MappingStartEvent():
                self._refuse_tag(event, line)
                self._open({}, event.anchor, line)
            case events.SequenceStartEvent():
                self._refuse_tag(event, line)
                self._open([], event.anchor, line)
            case events.MappingEndEvent() | events.SequenceEndEvent():
                self._close(line)
            case _:
                pass

    def _abort(self, line: int, message: str) -> None:
        self.faults.append(Fault(self._path(), line, message))
        raise _AbortError

    def _path(self) -> KeyPath:
        """Path of the next value."""
        if not self._stack:
            return ()
        top = self._stack[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        return top.path if top.key is None else (*top.path, top.key)

    def _refuse_tag(self, event: Any, line: int) -> None:
        tag = str(event.tag) if event.tag is not None else ""
        if tag not in ("", "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            self.faults.append(Fault(self._path(), line, f"tags such as {tag} are not taken here"))

    def _expects_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _scalar(self, event: events.ScalarEvent, line: int) -> None:
        written = self._characters(event.value, line)
        if self._expects_key():
            self._key(written, line)
            return
        text = self._substituted(written, line)
        value = _plain(text) if event.implicit[0] else text
        self._put(value, 1, line)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)

    def _characters(self, written: str, line: int) -> str:
        """The text with each surrogate pair as the character that it is."""
        if _SURROGATE.search(written) is None:
            return written
        text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), written)
        if _SURROGATE.search(text) is None:
            return text
        self.faults.append(Fault(self._path(), line, "has half of a surrogate pair, which is not a character"))
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)

    def _substituted(self, text: str, line: int) -> str:
        if self._substitute is None:
            return text
        try:
            return self._substitute(self._path(), text)
        except ValueError as error:
            self.faults.append(Fault(self._path(), line, str(error)))
            return text

    def _key(self, key: str, line: int) -> None:
        top = self._stack[-1]
        assert isinstance(top.value, dict)
        if key in top.value:
            first = self.lines[(*top.path, key)]
            self.faults.append(Fault((*top.path, key), line, f"key {key!r} stands here again (first on line {first})"))
        top.key = key
        if key != "<<":
            self.lines.setdefault((*top.path, key), line)

    def _alias(self, name: str, line: int) -> None:
        if self._expects_key():
            self._abort(line, "an alias cannot be a key")
        if name not in self._anchors:
            inside = any(level.anchor == name for level in self._stack)
            why = "stands inside what it names" if inside else "names nothing that came before"
            self._abort(line, f"alias *{name} {why}")
        value, values = self._anchors[name]
        self._put(value, values, line)

    def _open(self, value: dict[str, Any] | list[Any], anchor: str | None, line: int) -> None:
        if self._expects_key():
            self._abort(line, "a key must be plain text")
        if len(self._stack) == DEPTH_MAX:
            self._stack.clear()  # the fault is reported for the whole document: a path of 64 steps is unreadable
            self._abort(line, f"the text is nested deeper than {DEPTH_MAX} levels")
        path = self._path()
        self.lines.setdefault(path, line)
        self._stack.append(_Open(value, path, anchor))

    def _close(self, line: int) -> None:
        done = self._stack.pop()
        if isinstance(done.value, dict):
            for source in done.merged:
                for key, value in source.items():
                    done.value.setdefault(key, value)
        if done.anchor:
            self._anchors[done.anchor] = (done.value, done.values)
        # Its parts were counted one by one already; `_put` counts them again, for what encloses it.
        self._values -= done.values
        self._put(done.value, done.values, line)

    def _put(self, value: Any, values: int, line: int) -> None:
        self._values += values
        if self._values > VALUES_MAX:
            self._abort(line, f"the document has more than {VALUES_MAX} values once its aliases are spelled out")
        path = self._path()
        self.lines.setdefault(path, line)
        if not self._stack:
            self.data = value
            return
        top = self._stack[-1]
        top.values += values
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key == "<<":
            self._merge(top, value, line)
        else:
            assert top.key is not None
            top.value.setdefault(top.key, value)
        top.key = None

    def _merge(self, top: _Open, value: Any, line: int) -> None:
        sources = value if isinstance(value, list) else [value]
        if all(isinstance(source, dict) for source in sources):
            top.merged.extend(sources)
        else:
            self.faults.append(Fault(top.path, line, "'<<' takes a mapping or a list of mappings"))


def _plain(text: str) -> Any:
    """Value of an unquoted scalar by YAML 1.2's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
