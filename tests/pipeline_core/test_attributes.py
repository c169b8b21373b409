"""One attribute of many events as a column: cut out of the text, it is what reading the JSON gives."""

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.event.attributes import _decoded, attribute_numbers, attribute_texts, number_of
from logboom.pipeline.event.flat_attributes import flat_texts

NAMES = ["a", "b", "a.b", "b.a", 'q"a', "a\\b", "a.\x01", "é", "a:", ",", ""]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-20, 20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1.5, 10.0, 1e300, -0.0, 12.25]),
    st.text('ab,:{}[]"\\ é\n', max_size=6),
    st.sampled_from(['","a":5', "a", '{"a":1}', "1e3", "12", "007", "+5", ".5", "5.", "1" * 30, "nan", "x" * 60]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner)
)
OBJECTS = st.dictionaries(st.sampled_from(NAMES), LEAVES | VALUES, max_size=5)


@settings(deadline=None)
@given(st.lists(st.none() | OBJECTS, max_size=6), st.sampled_from(NAMES), st.integers(0, 2))
def test_a_column_cut_out_is_what_reading_gives(objects: list[Any], name: str, start: int) -> None:
    texts = [None if one is None else msgspec.json.encode(one).decode() for one in objects]
    column = pa.array(texts, pa.string()).slice(min(start, len(texts)))
    expected = _decoded(column, name)
    assert attribute_texts(column, name).to_pylist() == expected
    numbers = attribute_numbers(column, name).to_pylist()
    assert numbers == [number_of(text) for text in expected]
    attribute_texts(column, name).validate(full=True)


@pytest.mark.parametrize("name", ['q"a', "a\\\\b", "a\\nb", 'a."b'])
def test_a_name_with_any_characters_is_found(name: str) -> None:
    column = pa.array([json.dumps({name: 1}), json.dumps({"a": {'"b': [1]}}), None])
    assert attribute_texts(column, name).to_pylist() == ["1", "[1]" if name.startswith("a.") else None, None]


@pytest.mark.parametrize("value", ["GET", "", 12, -7, 12.5, True, None])
def test_plain_values_need_no_reading(value: object) -> None:
    column = pa.array([json.dumps({"x": "y,", "a": value, "z": 1}, separators=(",", ":"))] * 3 + ["{}", None])
    assert flat_texts(column, b'"a":').known.tolist() == [True] * 5


@pytest.mark.parametrize("text", ['{"a": 1}', '{ "a":1}', '{"a":1 }', '{"a":1,"a":2}', '{"b":{"a":1}}', '{"a":[1]}'])
def test_what_is_not_plain_is_left_to_reading(text: str) -> None:
    column = pa.array([text])
    assert not flat_texts(column, b'"a":').known[0]
    assert attribute_texts(column, "a").to_pylist() == _decoded(column, "a")
