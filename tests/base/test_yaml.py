"""YAML reading: faults with lines, and a bound on everything a text can make us do."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.yaml import DEPTH_MAX, TEXT_MAX_CHARS, read


def faults(text: str) -> list[tuple[int, str]]:
    return [(fault.line, fault.message) for fault in read(text).faults]


def test_key_that_stands_twice_is_a_fault_at_the_second() -> None:
    assert faults("a: 1\nb:\n  c: 1\n  c: 2\na: 2\n") == [
        (4, "key 'c' stands here again (first on line 3)"),
        (5, "key 'a' stands here again (first on line 1)"),
    ]


def test_a_line_that_is_indented_with_a_tab_is_told_what_to_do() -> None:
    assert faults("a:\n\tb: 1\n") == [(2, "a tab stands where YAML wants spaces: indent with spaces")]


def test_plain_scalars_follow_the_core_schema() -> None:
    text = "{a: yes, b: 2026-01-01, c: 0x10, d: 1e3, e: ~, f: 'null', 1: x, g: 1_0, h: true, i: 010, j: -3, k: .5}"
    assert read(text).data == {
        "a": "yes", "b": "2026-01-01", "c": 16, "d": 1000.0, "e": None, "f": "null", "1": "x", "g": "1_0",
        "h": True, "i": 10, "j": -3, "k": 0.5,
    }  # fmt: skip


def test_a_surrogate_pair_is_a_character() -> None:
    """As programs write one whose JSON has nothing beyond ASCII."""
    reading = read(json.dumps({"a\U0001f600": "\U0001f600 \u00e4"}))
    assert (reading.data, reading.faults) == ({"a\U0001f600": "\U0001f600 \u00e4"}, ())


def test_anchors_and_merges_are_followed() -> None:
    reading = read("base: &base {port: 7, host: a}\nreal:\n  <<: *base\n  host: b\nlist: [*base]\n")
    assert not reading.faults
    assert reading.data["real"] == {"host": "b", "port": 7}
    assert reading.data["list"] == [{"port": 7, "host": "a"}]


def test_lines_are_those_of_the_keys() -> None:
    lines = read("a: 1\nb:\n  - c: 1\n\n  - d: 2\n").lines
    assert (lines[("a",)], lines[("b",)], lines[("b", 0)], lines[("b", 1, "d")]) == (1, 2, 3, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "expected the node content, but found '<stream end>' (while parsing a flow node)"),
        ("a: b: c", "mapping values are not allowed here"),
        ("a: *x", "alias *x names nothing that came before"),
        ("a: &x [*x]", "alias *x stands inside what it names"),
        ("a: \x00", "character '\\x00' may not stand in YAML"),
        ("a: '\\ud800'\nb: \"\\ud83d\"", "has half of a surrogate pair, which is not a character"),
        ('"\\ude00": 1', "has half of a surrogate pair, which is not a character"),
        ('a: "\\UFFFFFFFF"', "an escape or a directive from here on has a number that means nothing"),
        ('a: 1\nb: "\\U00110000"', "an escape or a directive from here on has a number that means nothing"),
        ("%YAML 1.99\n---\na: 1", "an escape or a directive from here on has a number that means nothing"),
        (f"%YAML {'9' * 5_000}.1\n---\na", "an escape or a directive from here on has a number that means nothing"),
        ("a: !python/object 1", "tags such as !python/object are not taken here"),
        ("? [a]\n: 1", "a key must be plain text"),
        ("a: &a k\n*a : 1", "an alias cannot be a key"),
        ("a: 1\n<<: 3", "'<<' takes a mapping or a list of mappings"),
        ("a: 1\n---\nb: 1", "one document is expected, and a second one starts here"),
        ("[" * 2_000, f"the text is nested deeper than {DEPTH_MAX} levels"),
        ("a" * (TEXT_MAX_CHARS + 1), f"the text is longer than {TEXT_MAX_CHARS} characters"),
    ],
)
def test_faults_are_reported_as_sentences(text: str, message: str) -> None:
    assert message in [told for _, told in faults(text)]


def test_billion_laughs_is_a_fault_and_no_outage() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    ((line, message),) = faults("\n".join(rows))
    assert line <= 6
    assert "values once its aliases are spelled out" in message


# JSON writes characters above U+FFFF as two escapes, which YAML does not join.
_text = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=8)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_text.filter(lambda key: key != "<<"), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_json)
def test_json_is_yaml_and_reads_back(data: object) -> None:
    assert read(json.dumps(data)).data == data


@given(st.text(alphabet="ab:-[]{}*&!|>?#%@'\",\n \t0~<", max_size=60))
def test_any_text_is_read_or_has_a_fault(text: str) -> None:
    reading = read(text)
    assert all(fault.line >= 1 and fault.message for fault in reading.faults)
