"""Masking of one column by all rules: rows without a find are recognised from the whole column and left alone.

It knows Arrow columns and the one that holds JSON. It must not know what a detector looks for or what replaces it.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.mask.detect import ANCHOR, SECRET_KEY_IN_JSON, Detector, Mark, detector_for
from logboom.pipeline.mask.replace import in_json, replacer
from logboom.pipeline.mask.rules import MaskRule
from logboom.pipeline.mask.texts import Masked, Masker, mask_object, mask_text, mask_values
from logboom.pipeline.parse.groups import replace_groups

Counts = npt.NDArray[np.int32]

ATTRIBUTES: Final = "attributes"
_VALUE_ENDS: Final = frozenset(b",}]")
_MEMORY_MAX: Final = 65_536
_ZERO: Final = np.uint8(ord("0"))
_BLANK: Final = ord(" ")
_DASH: Final = ord("-")
_FOUR_TRUE: Final = 0x01010101
_REMEMBERED_BYTES_MAX: Final = 128


@lru_cache(maxsize=256)
def masker_for(rule: MaskRule, key: bytes | None) -> Masker:
    """A rule ready to work; made once per process, so that hashes are remembered from batch to batch."""
    redact = replacer(msgspec.structs.replace(rule, action="redact"), None)
    detector, replace = detector_for(rule), replacer(rule, key)

    def evaluate(candidate: bytes, is_json: bool) -> bytes | None:
        if detector.find(candidate) != [(0, len(candidate))]:
            return None
        return in_json(replace(candidate)) if is_json else replace(candidate)

    remembered = lru_cache(maxsize=_MEMORY_MAX)(evaluate)

    def replacement_of(candidate: bytes, is_json: bool) -> bytes | None:
        return (remembered if len(candidate) <= _REMEMBERED_BYTES_MAX else evaluate)(candidate, is_json)

    return Masker(detector, replace, redact, rule.action != "keep_last", replacement_of)


def mask_column_of(
    maskers: Sequence[Masker], name: str, path: tuple[str, ...] | None, column: pa.Array, counts: Sequence[Counts]
) -> pa.Array:
    """The column with the finds of all rules replaced, one rule after the other; `counts` has them by rule and row.
    `path` limits attributes to one of them.

    Finds of most kinds are rare. Where several rules look for such, one expression made of all of theirs selects the
    rows for all of them. No replacement can add a row to these: the compiler refuses replacements that hold a find.
    """
    rare = [masker for masker in maskers if not (_is_fast(masker, path) or masker.detector.digit_runs)]
    candidates_of_rare = candidate_rows(rare, name, column) if len(rare) > 1 else None
    for masker, count in zip(maskers, counts, strict=True):
        if _is_fast(masker, path):
            column = _mask_context_free(masker, name, column, count)
        elif masker.detector.digit_runs:
            column = _mask_some(rows_with_digit_runs(column), column, count, partial(_mask_rows, masker, name, path))
        elif candidates_of_rare is None or 2 * len(candidates_of_rare) > len(column):
            column = _mask_rows(masker, name, path, column, count)
        else:
            column = _within(candidates_of_rare, column, count, partial(_mask_rows, masker, name, path))
    return column


def _is_fast(masker: Masker, path: tuple[str, ...] | None) -> bool:
    return masker.detector.context_free and masker.keeps_nothing and path is None


def _mask_some(
    rows: npt.NDArray[np.int64], column: pa.Array, counts: Counts, mask: Callable[[pa.Array, Counts], pa.Array]
) -> pa.Array:
    """Masks these rows of a column, or all rows where these are so many that selecting them would save nothing."""
    return _within(rows, column, counts, mask) if 2 * len(rows) < len(column) else mask(column, counts)


def _within(
    rows: npt.NDArray[np.int64], column: pa.Array, counts: Counts, mask: Callable[[pa.Array, Counts], pa.Array]
) -> pa.Array:
    """Masks some rows of a column."""
    if not len(rows):
        return column
    some_counts = np.zeros(len(rows), np.int32)
    some = mask(column.take(pa.array(rows)), some_counts)
    if not some_counts.any():
        return column
    counts[rows] += some_counts
    is_some = np.zeros(len(column), np.bool_)
    is_some[rows] = True
    return pc.replace_with_mask(column, pa.array(is_some), some)


def _mask_rows(masker: Masker, name: str, path: tuple[str, ...] | None, column: pa.Array, counts: Counts) -> pa.Array:
    touched: list[int] = []
    texts: list[bytes] = []
    hits = candidate_rows((masker,), name, column)
    for row, text in zip(hits.tolist(), _bytes_of(column, hits), strict=True):
        masked = _mask_one(masker, name, path, text)
        if masked.finds:
            touched.append(row)
            texts.append(masked.text)
            counts[row] += masked.finds
    return replaced(column, touched, texts)


def _mask_one(masker: Masker, name: str, path: tuple[str, ...] | None, text: bytes) -> Masked:
    if name != ATTRIBUTES:
        return mask_text(masker, text)
    if path is not None:
        return mask_values(masker, text, path)
    return mask_object(masker, text)


def candidate_rows(maskers: Sequence[Masker], name: str, column: pa.Array) -> npt.NDArray[np.int64]:
    """Rows in which one of the rules may have a find."""
    expression = _prefilter(tuple(masker.detector for masker in maskers), name == ATTRIBUTES)
    if expression is None:
        return _rows(column.is_valid())
    return _rows(pc.match_substring_regex(column, expression))


@lru_cache(maxsize=256)
def _prefilter(detectors: tuple[Detector, ...], in_json: bool) -> str | None:
    """One expression that matches every row with a find of any of these; None if every row has to be examined.

    In JSON a backslash can hide a find from an expression that depends on the text around it, and anchors mean the ends
    of a value, not those of the JSON.
    """
    parts = [replace_groups(detector.expression, lambda _: "(?:", "(?:") for detector in detectors]
    if in_json and any(detector.exact and ANCHOR.search(detector.expression) for detector in detectors):
        return None
    if in_json and any(detector.exact for detector in detectors):
        parts.append(r"\\")
    if in_json and any(detector.by_key for detector in detectors):
        parts.append(SECRET_KEY_IN_JSON)
    return "|".join(f"(?:{part})" for part in parts)


def _rows(hit: pa.Array) -> npt.NDArray[np.int64]:
    rows: npt.NDArray[np.int64] = pc.indices_nonzero(pc.fill_null(hit, False)).to_numpy().astype(np.int64)
    return rows


def _bytes_of(column: pa.Array, rows: npt.NDArray[np.int64]) -> list[bytes]:
    part = column if len(rows) == len(column) else column.take(pa.array(rows))
    texts: list[bytes] = part.cast(pa.binary()).to_pylist()
    return texts


def replaced(column: pa.Array, rows: npt.NDArray[np.int64] | list[int], texts: list[bytes]) -> pa.Array:
    """The column with other texts in these rows."""
    if not len(rows):
        return column
    if len(rows) == len(column):
        return pa.array(texts, pa.string())
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), pa.array(texts, pa.string()))


# --- finds that do not depend on the text around them -----------------------------------------------------------


def _mask_context_free(masker: Masker, name: str, column: pa.Array, counts: Counts) -> pa.Array:
    """The fast way for what is in nearly every line, such as addresses: RE2 finds over the whole column where the first
    candidate of each row is and whether it is the only one; a row then costs a look-up and a slice."""
    rows = rows_with_marks(column, masker.detector.marks)
    return _mask_some(rows, column, counts, partial(_mask_candidates, masker, name))


def rows_with_marks(column: pa.Array, marks: Sequence[Mark]) -> npt.NDArray[np.int64]:
    """The rows that hold one of these marks. The bytes of all rows are searched at once, so that rows without one cost
    nothing each."""
    ends, text = _buffer_of(column)
    found = [_places(text, mark) for mark in marks]
    places = np.sort(np.concatenate(found)) if len(found) > 1 else found[0]
    return _rows_of(places[places >= ends[0]], ends)


def rows_with_digit_runs(column: pa.Array) -> npt.NDArray[np.int64]:
    """The rows that may hold thirteen characters in a row that are digits, blanks or dashes, and some others.

    Compared four bytes at a time: any thirteen such characters in a row contain two adjacent, aligned groups of four.
    """
    ends, text = _buffer_of(column)
    text = text[ends[0] :]
    wanted = (text - _ZERO < 10) | (text == _BLANK) | (text == _DASH)
    fours = wanted[: len(wanted) // 4 * 4].view(np.uint32) == _FOUR_TRUE
    return _rows_of(np.flatnonzero(fours[:-1] & fours[1:]) * 4 + ends[0], ends)


def _buffer_of(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The offsets of all rows, and the bytes from the buffer's start to the end of the last row."""
    offsets, data = column.buffers()[1:3]
    if data is None:
        return np.zeros(len(column) + 1, np.int32), np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return ends, np.frombuffer(data, np.uint8)[: ends[-1]]


def _rows_of(places: npt.NDArray[np.int64], ends: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The rows that contain these positions, which are in order; each row once."""
    return np.unique(np.searchsorted(ends, places, side="right") - 1).astype(np.int64)


def _places(text: npt.NDArray[np.uint8], mark: Mark) -> npt.NDArray[np.int64]:
    """The positions of a mark's byte that have the right bytes beside them."""
    places = np.flatnonzero(text == mark.byte)
    if mark.between_digits:
        places = places[(places > 0) & (places + 1 < len(text))]
        places = places[(text[places - 1] - _ZERO < 10) & (text[places + 1] - _ZERO < 10)]
    for distance, byte in enumerate(mark.behind, start=1):
        places = places[places + distance < len(text)]
        places = places[text[places + distance] == byte]
    return places


def _mask_candidates(masker: Masker, name: str, column: pa.Array, counts: Counts) -> pa.Array:
    expression = masker.detector.expression
    spans = pc.struct_field(pc.extract_regex_span(column, f"(?P<find>{expression})"), "find")
    hits = _rows(_found(spans, column))
    if not len(hits):
        return column
    places = spans.take(pa.array(hits)).flatten().to_numpy(zero_copy_only=False)
    part = column if len(hits) == len(column) else column.take(pa.array(hits))
    # Arrow gives the span of the first match alone, so rows with a second candidate are masked one by one below.
    several = pc.match_substring_regex(part, f"(?s:{expression}.*{expression})").to_pylist()
    starts, ends = places[::2].tolist(), (places[::2] + places[1::2]).tolist()
    texts: list[bytes] = part.cast(pa.binary()).to_pylist()
    finds = [1] * len(texts)
    is_json = name == ATTRIBUTES
    replacement_of = masker.replacement_of
    for index, (text, is_several, start, end) in enumerate(zip(texts, several, starts, ends, strict=True)):
        if is_several or (is_json and not _in_one_value(text, start, end)):
            texts[index], finds[index] = _mask_one(masker, name, None, text)
            continue
        replacement = replacement_of(text[start:end], is_json)
        if replacement is None:
            finds[index] = 0
        else:
            texts[index] = text[:start] + replacement + text[end:]
    counts[hits] += np.array(finds, np.int32)
    return replaced(column, hits, texts)


def _found(spans: pa.Array, column: pa.Array) -> pa.Array:
    """Rows with a match: Arrow's kernel gives an empty span where there is none, and no detector matches empty text."""
    lengths = pc.list_element(spans, 1)
    return pc.and_(column.is_valid(), pc.greater(lengths, 0))


def _in_one_value(text: bytes, start: int, end: int) -> bool:
    """Whether a find in JSON without backslashes is within one string that is a value; if not, the row is masked
    on its own."""
    close = text.find(b'"', start)
    return close >= end and text[close + 1] in _VALUE_ENDS and text.count(b'"', 0, start) % 2 == 1 and b"\\" not in text
