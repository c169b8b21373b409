"""Patterns of a file: their groups, and that what is taken by `check` is taken by the engines that read lines."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline_core.batches import mask, parser, raw, read

from logboom.base.settings import SettingsError
from logboom.pipeline.mask.batch import engine_fault
from logboom.pipeline.parse.grok import PatternError, check_search, compile_line
from logboom.pipeline.parse.groups import replace_groups


def fields(pattern: str, line: str) -> dict[str, Any]:
    (row,) = read("pattern", line, pattern=[pattern])
    assert row["dead_reason"] is None
    return {"body": row["body"], **row["attributes"]}


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        (r"(a|b) (?P<body>.*)", "b x", {"body": "x"}),
        (r"((a)|(?:b)) (?P<body>.*)", "a x", {"body": "x"}),
        (r"(?i)(A|B) (?P<body>.*)", "b x", {"body": "x"}),
        (r"(?i:(A|B)) (?P<body>.*)", "b x", {"body": "x"}),
        (r"\((?P<body>.*)\)", "(x)", {"body": "x"}),
        (r"\\(a) (?P<body>.*)", "\\a x", {"body": "x"}),
        (r"[(](?P<body>.*)[)]", "(x)", {"body": "x"}),
        (r"[]()](a)(?P<body>.*)", ")ax", {"body": "x"}),
        (r"[^](](?P<body>.*)", "ax", {"body": "x"}),
        (r"[[:punct:](](?P<body>.*)", "(x", {"body": "x"}),
        (r"[\](](?P<body>.*)", "](x", {"body": "(x"}),
        (r"\Q(a\E(b)(?P<body>.*)", "(abx", {"body": "x"}),
        (r"\(?P<n>(?P<body>.*)", "P<n>x", {"body": "x"}),
        (r"(%{WORD}|-) %{GREEDYDATA:body}", "w x", {"body": "x"}),
        (r"(?:a(?P<x>.)|b(?P<x>.)) (?P<body>.*)", "b1 x", {"x": "1", "body": "x"}),
    ],
)
def test_groups_without_a_name_do_not_capture(pattern: str, line: str, found: dict[str, Any]) -> None:
    assert fields(pattern, line) == found


def test_a_pattern_of_the_file_may_have_groups_without_a_name() -> None:
    (row,) = read("pattern", "b x", pattern=["%{AB} %{GREEDYDATA:body}"], own={"AB": "(a|b)"})
    assert row["body"] == "x"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"(?P<x>a)(?P<x>b)", "has the field 'x' twice"),
        (r"(?P<x>a(?P<x>b))", "has the field 'x' twice"),
        (r"(?:a|(?P<x>b)) %{WORD:x}", "has the field 'x' twice"),
        (r"(?P<x>\C)", r"has \\C"),
        (r"(?P<x>(?:a{1000}){1000})", "is not an RE2 expression"),
        (r"(?P<x>(?:(?:\pL{100}){10}){10})", "is not an RE2 expression"),
        (r"(?P<x>a)(?=b)", "look-around"),
    ],
)
def test_what_an_engine_or_a_field_cannot_bear_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        compile_line(pattern, {})


@pytest.mark.parametrize(
    "pattern", [r"(?P<secret>a)|(?P<secret>b)", r"k=(?P<secret>\C+)", "a**b", r"(?:\pL{1000}){9}x{1000}"]
)
def test_masks_ask_both_engines_as_well(pattern: str) -> None:
    with pytest.raises(PatternError):
        check_search(pattern)


def test_rules_that_are_too_much_together_are_found_before_any_row() -> None:
    wide = [{"kind": "pattern", "label": f"p{n}", "pattern": rf"k{n}=(?P<secret>\pL{{80}})"} for n in range(60)]
    assert engine_fault(mask(wide[0]).rules, ("body",)) is None
    fault = engine_fault(mask(*wide).rules, ("body",))
    assert fault is not None
    assert "too large" in fault


_PIECES = st.sampled_from(
    [
        "a",
        "b",
        "(",
        ")",
        "(?:",
        "(?P<x>",
        "(?i)",
        "|",
        "[",
        "]",
        "[(",
        "[]",
        "\\(",
        "\\)",
        "\\",
        "\\Q",
        "\\E",
        "*",
        "^",
        ".",
    ]
)


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_what_compiles_never_stops_a_batch(pattern: str) -> None:
    """Whatever groups a pattern has: refused when it is compiled, or taken by the engine that reads the lines."""
    try:
        transform = parser({"format": "pattern", "pattern": f"{pattern}(?P<body>.*)"})
    except SettingsError:
        return
    assert transform.run(raw([b"ab", b"(a)", b"", None]), {}).num_rows == 4


@given(st.lists(_PIECES, max_size=12).map("".join), st.sampled_from(["ab", "(a)", "[]", "a|b", "\\"]))
def test_groups_that_do_not_capture_match_what_they_did(pattern: str, text: str) -> None:
    changed = replace_groups(pattern, lambda name: "(?:", "(?:")

    def matches(expression: str) -> bool | None:
        try:
            return bool(pc.match_substring_regex(pa.array([text]), expression)[0].as_py())
        except pa.ArrowInvalid:
            return None

    before = matches(pattern)
    if before is not None:
        assert matches(changed) == before
