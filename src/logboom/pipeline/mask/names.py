"""Masking of the names of attributes: a program may use what a person typed as the name of a field.

It knows one column of JSON objects. It must not know what a detector looks for or what replaces it.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from logboom.pipeline.mask.columns import ATTRIBUTES, Counts, candidate_rows, replaced
from logboom.pipeline.mask.texts import Masker, mask_text

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def mask_names_of(maskers: Sequence[Masker], attributes: pa.Array, counts: Sequence[Counts]) -> pa.Array:
    """The objects with what the rules find in names replaced, at any depth; `counts` has the finds by rule and row.

    Names that become equal are told apart by `_2`, `_3` and so on at their end, so that no value is lost.
    """
    rows = candidate_rows(maskers, ATTRIBUTES, attributes)
    touched: list[int] = []
    texts: list[bytes] = []
    for row, text in zip(rows.tolist(), attributes.take(pa.array(rows)).to_pylist(), strict=True):
        renaming = _Renaming(maskers)
        tree = renaming.inside(_decode(text))
        if any(renaming.finds):
            touched.append(row)
            texts.append(_encode(tree))
            for count, finds in zip(counts, renaming.finds, strict=True):
                count[row] += finds
    return replaced(attributes, np.array(touched, np.int64), texts)


class _Renaming:
    """The names of one object, and what was found in them by rule."""

    def __init__(self, maskers: Sequence[Masker]) -> None:
        self._maskers = maskers
        self.finds = [0] * len(maskers)

    def inside(self, value: Any) -> Any:
        if type(value) is list:
            return [self.inside(each) for each in value]
        if type(value) is not dict:
            return value
        found: dict[str, Any] = {}
        for name, inner in value.items():
            masked = self._masked(name)
            new, number = masked, 1
            while new in found or (new != name and new in value):
                number += 1
                new = f"{masked}_{number}"
            found[new] = self.inside(inner)
        return found

    def _masked(self, name: str) -> str:
        text = name.encode()
        for number, masker in enumerate(self._maskers):
            masked = mask_text(masker, text)
            self.finds[number] += masked.finds
            text = masked.text
        return text.decode(errors="replace")
