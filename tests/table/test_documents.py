"""JSON documents and merge patches."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.table.documents import encode, merge_patch, parse
from logboom.table.errors import DocumentError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab\n☃"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)

# The examples of RFC 7386, appendix A: original, patch, result.
EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("original", "patch", "result"), EXAMPLES)
def test_the_examples_of_the_rfc(original: Any, patch: Any, result: Any) -> None:
    assert merge_patch(original, patch) == result


@given(JSON, JSON)
def test_a_merge_changes_neither_argument_and_repeats_to_the_same(original: Any, patch: Any) -> None:
    before, wanted = json.dumps(original), json.dumps(patch)
    once = merge_patch(original, patch)
    assert (json.dumps(original), json.dumps(patch)) == (before, wanted)
    assert merge_patch(once, patch) == once


@given(JSON)
def test_what_is_written_is_read_again(document: Any) -> None:
    assert parse(encode(document), "it") == document


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"[1", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"", "it is not JSON"),
        (b"NaN", "it has NaN"),
        (b"0.12345678901234567890", "which a double cannot hold"),
        (b"1e999", "which a double cannot hold"),
        (b'{"a":1,"a":2}', "a name twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5_000, "it is not JSON"),
    ],
)
def test_what_a_merge_could_not_write_back_is_refused(text: bytes, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        parse(text, "it")


@pytest.mark.parametrize("document", [float("nan"), {1, 2}, "\ud800"])
def test_what_json_does_not_know_is_refused(document: Any) -> None:
    with pytest.raises(DocumentError, match="cannot be written"):
        encode(document)
