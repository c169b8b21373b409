"""Masking of one text, and of one JSON object given as text.

It knows UTF-8 bytes, finds and JSON as msgspec writes it: no blanks, and a backslash only where it must be. It must not
know columns. Keys of objects are never touched, and JSON stays JSON: a number that is masked becomes a string.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from logboom.pipeline.mask.detect import ANCHOR, SECRET_KEY, SECRET_KEY_IN_LINES, Detector, Span
from logboom.pipeline.mask.replace import Replace, in_json

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
_ROUNDS_MAX: Final = 8
_VALUE_ENDS: Final = frozenset(b",}]")
_COLON: Final = ord(":")


class Masker(NamedTuple):
    """A rule ready to work."""

    detector: Detector
    replace: Replace
    redact: Replace
    """The replacement to use where that of `replace`, together with the text beside it, would be found again."""

    keeps_nothing: bool
    """Whether a replacement keeps nothing of the find, and so can never be found again."""

    replacement_of: Callable[[bytes, bool], bytes | None]
    """For a context-free detector: what replaces a candidate (in JSON or not), or None if it is no find."""


class Masked(NamedTuple):
    """The new text and how many finds were replaced in it."""

    text: bytes
    finds: int


def mask_text(masker: Masker, text: bytes) -> Masked:
    """A text without anything the detector finds."""
    spans = masker.detector.find(text)
    if not spans:
        return Masked(text, 0)
    count = len(spans)
    text = splice(text, spans, masker.replace)
    for _ in range(_ROUNDS_MAX):  # what was kept of a find can make another with the text beside it
        spans = masker.detector.find(text)
        if not spans:
            return Masked(text, count)
        text = splice(text, spans, masker.redact)
        count += len(spans)
    return Masked(masker.redact(text), count)


def splice(text: bytes, spans: Iterable[Span], replace: Replace) -> bytes:
    """The text with each span replaced."""
    parts: list[bytes] = []
    position = 0
    for start, end in spans:
        parts += (text[position:start], replace(text[start:end]))
        position = end
    parts.append(text[position:])
    return b"".join(parts)


def mask_object(masker: Masker, text: bytes) -> Masked:
    """A JSON object whose values, at any depth, hold nothing the detector finds."""
    if b"\\" not in text and not masker.detector.exact:
        masked = _mask_written(masker, text)
        if masked is not None:
            return masked
    return mask_values(masker, text, None)


def mask_values(masker: Masker, text: bytes, path: tuple[str, ...] | None) -> Masked:
    """The same by reading the object, for all values or for those below one attribute."""
    tree = _decode(text)
    if path is None and _has_nothing(masker.detector, tree):
        return Masked(text, 0)
    walk = _Walk(masker)
    if path is None:
        walk.inside(tree)
    else:
        walk.below(tree, path)
    return Masked(_encode(tree), walk.count) if walk.count else Masked(text, 0)


def _has_nothing(detector: Detector, tree: dict[str, Any]) -> bool:
    """Whether no value can hold a find, by one search over all values. NUL between them acts as the end of a text,
    except for anchors."""
    if ANCHOR.search(detector.expression):
        return False
    keys: list[str] = []
    values: list[bytes] = []
    _gather(tree, keys, values)
    if detector.by_key and SECRET_KEY_IN_LINES.search("\n".join(keys)) is not None:
        return False
    return not detector.may_find(b"\0".join(values))


def _gather(holder: Any, keys: list[str], values: list[bytes]) -> None:
    if isinstance(holder, dict):
        keys += holder
        holder = holder.values()
    for value in holder:
        kind = type(value)
        if kind is dict or kind is list:
            _gather(value, keys, values)
        elif kind is str:
            values.append(value.encode())
        elif kind is int or kind is float:
            values.append(_encode(value))


def _mask_written(masker: Masker, text: bytes) -> Masked | None:
    """Masks the JSON as it is written; None if a find is not within one value, or would be found again."""
    spans = masker.detector.find(text)
    wanted: list[Span] = []
    quotes, position = 0, 0
    for start, end in spans:
        quotes += text.count(b'"', position, start)
        position = start
        if quotes % 2 == 0 or text.find(b'"', start, end) >= 0:
            return None
        behind = text[text.find(b'"', end) + 1]
        if behind in _VALUE_ENDS:
            wanted.append((start, end))
        elif behind != _COLON:  # a colon ends a key; anything else is not JSON as msgspec writes it
            return None
    if not wanted:
        return Masked(text, 0)
    masked = splice(text, wanted, lambda found: in_json(masker.replace(found)))
    if len(wanted) == len(spans) and not masker.detector.find(masked):
        return Masked(masked, len(wanted))
    return None


class _Walk:
    """Masks the values of an object in place."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self.count = 0

    def inside(self, holder: Any) -> None:
        """Every value in an object or a list."""
        pairs = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, value in list(pairs):
            self._value(holder, key, value)

    def below(self, holder: Any, path: tuple[str, ...]) -> None:
        """The value of one attribute: `path` is a name with dots, or leads into nested objects."""
        joined = ".".join(path)
        if isinstance(holder, dict) and joined in holder:
            self._value(holder, joined, holder[joined])
        elif isinstance(holder, dict) and len(path) > 1 and path[0] in holder:
            self.below(holder[path[0]], path[1:])

    def _value(self, holder: Any, key: Any, value: Any) -> None:
        kind = type(value)
        if kind is dict or kind is list:
            self.inside(value)
        elif kind is str or kind is int or kind is float:
            text = value.encode() if kind is str else _encode(value)
            masked = self._scalar(key, text)
            if masked.finds:
                holder[key] = masked.text.decode(errors="replace")
                self.count += masked.finds

    def _scalar(self, key: Any, text: bytes) -> Masked:
        detector = self._masker.detector
        if detector.by_key and isinstance(key, str) and text and SECRET_KEY.search(key):
            if detector.is_masked(text):
                return Masked(text, 0)
            return Masked(self._masker.replace(text), 1)
        return mask_text(self._masker, text)
