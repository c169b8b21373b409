"""Masking of one column by one rule: which rows hold something is asked of the whole column, only those are touched.

It knows Arrow columns and the one that holds JSON. It must not know what a detector looks for or what replaces it.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.mask_detect import SECRET_KEY_IN_JSON, detector_for
from logboom.pipeline.mask_replace import in_json, replacer
from logboom.pipeline.mask_texts import Masked, Masker, mask_object, mask_text, mask_values
from logboom.pipeline.plan import MaskRule

Counts = npt.NDArray[np.int32]

_ANCHOR: Final = re.compile(r"(?<!\[)\^|\$|\\A|\\z")
_ATTRIBUTES: Final = "attributes"
_COLON: Final = ord(":")
_MEMORY_MAX: Final = 65_536


@lru_cache(maxsize=256)
def masker_for(rule: MaskRule, key: bytes | None) -> Masker:
    """A rule ready to work; made once per process, so that hashes are remembered from batch to batch."""
    redact = replacer(msgspec.structs.replace(rule, action="redact"), None)
    detector, replace = detector_for(rule), replacer(rule, key)

    @lru_cache(maxsize=_MEMORY_MAX)
    def stand_in(candidate: bytes, is_json: bool) -> bytes | None:
        if detector.find(candidate) != [(0, len(candidate))]:
            return None
        return in_json(replace(candidate)) if is_json else replace(candidate)

    return Masker(detector, replace, redact, rule.action != "keep_last", stand_in)


def mask_column_of(
    masker: Masker, name: str, path: tuple[str, ...] | None, column: pa.Array, counts: Counts
) -> pa.Array:
    """The column with all finds replaced, which `counts` has by row; `path` limits attributes to one of them."""
    if masker.detector.context_free and masker.lasting and path is None:
        return _mask_context_free(masker, name, column, counts)
    touched: list[int] = []
    texts: list[bytes] = []
    hits = _rows_to_touch(masker, name, column)
    for row, text in zip(hits.tolist(), _bytes_of(column, hits), strict=True):
        masked = _mask_one(masker, name, path, text)
        if masked.finds:
            touched.append(row)
            texts.append(masked.text)
            counts[row] += masked.finds
    return _replaced(column, touched, texts)


def _mask_one(masker: Masker, name: str, path: tuple[str, ...] | None, text: bytes) -> Masked:
    if name != _ATTRIBUTES:
        return mask_text(masker, text)
    if path is not None:
        return mask_values(masker, text, path)
    return mask_object(masker, text)


def _rows_to_touch(masker: Masker, name: str, column: pa.Array) -> npt.NDArray[np.int64]:
    """Rows that may hold a find. In JSON a backslash can hide one from an expression that looks at what stands around
    it, and an expression with anchors means the ends of a value, not those of the JSON: such rows are all looked at."""
    detector = masker.detector
    if name == _ATTRIBUTES and detector.exact and _ANCHOR.search(detector.expression):
        hit = column.is_valid()
    else:
        hit = pc.match_substring_regex(column, detector.expression)
        if name == _ATTRIBUTES and detector.exact:
            hit = pc.or_(hit, pc.match_substring_regex(column, r"\\"))
        if name == _ATTRIBUTES and detector.by_key:
            hit = pc.or_(hit, pc.match_substring_regex(column, SECRET_KEY_IN_JSON))
    return _rows(hit)


def _rows(hit: pa.Array) -> npt.NDArray[np.int64]:
    rows: npt.NDArray[np.int64] = pc.indices_nonzero(pc.fill_null(hit, False)).to_numpy().astype(np.int64)
    return rows


def _bytes_of(column: pa.Array, rows: npt.NDArray[np.int64]) -> list[bytes]:
    part = column if len(rows) == len(column) else column.take(pa.array(rows))
    texts: list[bytes] = part.cast(pa.binary()).to_pylist()
    return texts


def _replaced(column: pa.Array, rows: list[int], texts: list[bytes]) -> pa.Array:
    if not rows:
        return column
    if len(rows) == len(column):
        return pa.array(texts, pa.string())
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), pa.array(texts, pa.string()))


# --- finds that need no look around them ------------------------------------------------------------------------


def _mask_context_free(masker: Masker, name: str, column: pa.Array, counts: Counts) -> pa.Array:
    """The fast way for what stands in nearly every line, such as addresses: RE2 says over the whole column where the
    first candidate of each row is and whether it is the only one; then a row costs a look-up and a slice."""
    within = _rows_with_literals(masker, column)
    if within is not None:
        if not len(within):
            return column
        some, some_counts = column.take(pa.array(within)), np.zeros(len(within), np.int32)
        masked_some = _mask_candidates(masker, name, some, some_counts)
        if not some_counts.any():
            return column
        counts[within] += some_counts
        mask = np.zeros(len(column), np.bool_)
        mask[within] = True
        return pc.replace_with_mask(column, pa.array(mask), masked_some)
    return _mask_candidates(masker, name, column, counts)


def _rows_with_literals(masker: Masker, column: pa.Array) -> npt.NDArray[np.int64] | None:
    """The few rows that are worth a closer look, or None where that cannot be told so cheaply."""
    literals = masker.detector.literals
    if not literals:
        return None
    hit = pc.match_substring_regex(column, re.escape(literals[0]))
    for literal in literals[1:]:
        hit = pc.or_(hit, pc.match_substring_regex(column, re.escape(literal)))
    rows = _rows(hit)
    return rows if 2 * len(rows) < len(column) else None


def _mask_candidates(masker: Masker, name: str, column: pa.Array, counts: Counts) -> pa.Array:
    expression = masker.detector.expression
    spans = pc.struct_field(pc.extract_regex_span(column, f"(?P<find>{expression})"), "find")
    hits = _rows(_found(spans, column))
    if not len(hits):
        return column
    places = spans.take(pa.array(hits)).flatten().to_numpy(zero_copy_only=False)
    part = column if len(hits) == len(column) else column.take(pa.array(hits))
    single = pc.equal(pc.count_substring_regex(part, expression), 1).to_pylist()
    starts, ends = places[::2], places[::2] + places[1::2]
    texts: list[bytes] = part.cast(pa.binary()).to_pylist()
    touched: list[int] = []
    masked_texts: list[bytes] = []
    is_json = name == _ATTRIBUTES
    stand_in = masker.stand_in
    rows = zip(hits.tolist(), texts, single, starts.tolist(), ends.tolist(), strict=True)
    for row, text, is_single, start, end in rows:
        if not is_single or (is_json and not _in_one_value(text, start, end)):
            masked = _mask_one(masker, name, None, text)
            if masked.finds:
                touched.append(row)
                masked_texts.append(masked.text)
                counts[row] += masked.finds
            continue
        replacement = stand_in(text[start:end], is_json)
        if replacement is not None:
            touched.append(row)
            masked_texts.append(text[:start] + replacement + text[end:])
            counts[row] += 1
    return _replaced(column, touched, masked_texts)


def _found(spans: pa.Array, column: pa.Array) -> pa.Array:
    """Rows with a match: the kernel gives an empty span where there is none, and nothing we look for is empty."""
    lengths = pc.list_element(spans, 1)
    return pc.and_(column.is_valid(), pc.greater(lengths, 0))


def _in_one_value(text: bytes, start: int, end: int) -> bool:
    """Whether a find in JSON without backslashes lies within one string that is a value; if not it is looked at
    closely."""
    if text.count(b'"', 0, start) % 2 == 0 or b"\\" in text:
        return False
    close = text.find(b'"', start)
    return close >= end and text[close + 1] != _COLON
