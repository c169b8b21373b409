"""Lines that a named-group expression reads, whole columns at a time through RE2.

It knows expressions and the types of their groups. It must not know what a field means. An empty group is an absent
one; where several groups have one name the first that is not empty wins.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.normalise.rows import Fields, Row
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE
from logboom.pipeline.plan.nodes import PatternField, PatternFormat


def read_pattern(lines: pa.Array, form: PatternFormat) -> list[Row]:
    """Rows of a string array: the first expression that matches a line gives its fields."""
    rows: list[Row] = [f"does not match {form.label}"] * len(lines)
    left = np.arange(len(lines))
    for expression, fields in zip(form.expressions, form.fields, strict=True):
        part = lines if len(left) == len(lines) else lines.take(pa.array(left))
        groups = pc.extract_regex(part, expression)
        matched = groups.is_valid().to_numpy(zero_copy_only=False)
        found = groups if matched.all() else groups.filter(pa.array(matched))
        for index, row in zip(left[matched].tolist(), _rows(found, fields), strict=True):
            rows[index] = row
        left = left[~matched]
        if not len(left):
            return rows
    texts = lines.take(pa.array(left)).to_pylist()
    for index, text in zip(left.tolist(), texts, strict=True):
        if not text:
            rows[index] = NO_VALUE if text is None else EMPTY
    return rows


def group_lists(groups: pa.Array, fields: tuple[PatternField, ...]) -> list[list[Any]]:
    """A list of values per field, typed."""
    lists = []
    for field in fields:
        values = pc.struct_field(groups, field.group).to_pylist()
        convert = CONVERSIONS.get(field.type)
        lists.append(values if convert is None else [convert(value) for value in values])
    return lists


def _rows(groups: pa.Array, fields: tuple[PatternField, ...]) -> list[Fields]:
    names = [field.name for field in fields]
    rows = zip(*group_lists(groups, fields), strict=True)
    if len(set(names)) == len(names):
        return [{name: value for name, value in zip(names, row, strict=True) if value or value == 0} for row in rows]
    backwards = names[::-1]
    return [
        {name: value for name, value in zip(backwards, row[::-1], strict=True) if value or value == 0} for row in rows
    ]


def _integer(text: str) -> Any:
    """What is no whole number stays as it was written."""
    try:
        return int(text) if text else None
    except ValueError:
        return text


def _floating(text: str) -> Any:
    try:
        number = float(text) if text else None
    except ValueError:
        return text
    return number if number is None or abs(number) < float("inf") else text


CONVERSIONS: Final[dict[str, Callable[[str], Any]]] = {"int": _integer, "float": _floating}
