"""Patterns of subjects, beside a model that knows words and nothing of how they are compared."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.subjects import PATTERN_BYTES_MAX, covers, matches, overlap, pattern_fault, without_partition

LETTERS = "ab"
DEPTH = 4
WORDS = [".".join(tokens) for count in range(1, DEPTH + 1) for tokens in product(LETTERS, repeat=count)]
"""All subjects of up to four tokens. Patterns of up to three are told apart by them."""

patterns = st.builds(
    lambda tokens, rest: ".".join([*tokens, *rest]),
    st.lists(st.sampled_from("ab*"), min_size=1, max_size=2),
    st.sampled_from([(), (">",), ("*",)]),
) | st.sampled_from([">", "*", "*.>"])


def model(pattern: str, subject: str) -> bool:
    """Matching as the documentation of NATS words it, token by token from the left."""
    if pattern == "":
        return subject == ""
    if subject == "":
        return False
    first, _, rest = pattern.partition(".")
    token, _, others = subject.partition(".")
    if first == ">":
        return True
    return (first in ("*", token)) and model(rest, others)


@given(patterns, st.sampled_from(WORDS))
def test_a_pattern_matches_what_the_model_says(pattern: str, subject: str) -> None:
    assert matches(pattern, subject) is model(pattern, subject)


@given(patterns, patterns)
def test_patterns_overlap_where_a_subject_matches_both(one: str, other: str) -> None:
    assert overlap(one, other) is any(model(one, word) and model(other, word) for word in WORDS)


@given(patterns, patterns)
def test_a_pattern_covers_another_where_each_subject_of_that_matches(wide: str, narrow: str) -> None:
    # A third letter, which no pattern names, tells `*` apart from both letters together.
    words = [*WORDS, *(word.replace("b", "c") for word in WORDS)]
    assert covers(wide, narrow) is all(model(wide, word) for word in words if model(narrow, word))


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("orders", None),
        ("orders.*.>", None),
        (">", None),
        ("заказы.東京.🙂", None),
        ("orders.{partition}", None),
        ("$KV.b.k=1", None),
        ("x" * PATTERN_BYTES_MAX, None),
        ("", "is empty"),
        (".a", "has an empty token"),
        ("a..b", "has an empty token"),
        ("a.", "has an empty token"),
        ("a b", "has a blank, or a character that cannot be printed"),
        ("a\tb", "has a blank, or a character that cannot be printed"),
        ("a\0b", "has a blank, or a character that cannot be printed"),
        ("a\ud800", "has a blank, or a character that cannot be printed"),
        (">.a", "has '>' before its last token"),
        ("a*.b", "has a wildcard inside of the token 'a*': it stands alone between dots"),
        ("a.>>", "has a wildcard inside of the token '>>': it stands alone between dots"),
        ("é" * (PATTERN_BYTES_MAX // 2) + "x", f"is longer than {PATTERN_BYTES_MAX} bytes"),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said(pattern: str, fault: str | None) -> None:
    assert pattern_fault(pattern) == fault


@given(st.text())
def test_any_text_is_a_pattern_or_has_a_fault(text: str) -> None:
    if pattern_fault(text) is None:
        assert matches(text, text.replace("*", "x").replace(">", "y.z"))
        assert covers(text, text)
        assert overlap(text, text)


def test_the_index_of_a_partition_is_any_token() -> None:
    assert without_partition("orders.{partition}.eu") == "orders.*.eu"
    assert without_partition("orders.x{partition}") == "orders.x{partition}"
