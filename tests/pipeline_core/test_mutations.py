"""Pipelines with something wrong in them, made by changing good ones key by key and character by character.

Whatever a file says, `check` answers with a plan or with problems of its own, each with a line and in words that are no
library's. What it accepts runs: the kernels take any record, and the layout and the plan's JSON can be made.
"""

import copy
import functools
import re
import string
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.docs.blocks import blocks_of
from tests.pipeline_core.batches import raw

from logboom.base.settings import SettingsError, parse_yaml
from logboom.base.yaml import KeyPath
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.registry import read_plan
from logboom.pipeline.transforms.mask import MaskTransform
from logboom.pipeline.transforms.parse import ParseTransform

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pipeline.md"
TEXTS = [
    *(block.text for block in blocks_of(PAGE) if block.language == "yaml" and block.text.startswith("name:")),
    *(path.read_text() for path in sorted((ROOT / "examples" / "demo").glob("*pipeline.yaml"))),
]
NOT_OURS = re.compile(r"Input should|validation error|pydantic|Value error|object has no|NoneType|<class")
LINES = (b'{"level": "error", "msg": "a@b.example", "n": {"x": [1, null]}}', b"", None, b"\xff\x00 text %{} 1.2.3.4")
RECORDS = raw(LINES)

WORDS = ["", " ", "\n", "\0", "*", "a.b", "()", "~", "/", "%", "%{", "attributes.", "x" * 300, "s3a://x", "file:///x"]
WORDS += ["s", "web", "shop", "dead", "unmatched", "dropped", "stream", "parse", "json", "pattern", "hash", "weight"]
WORDS += ["([a", "(?P<a>x)(?P<a>y)", "%{INT:n:integer}", "%{NOPE}", "(" * 300, "a{1000}{1000}", "(?i)(?-i)x", "%H:%M"]
SHAPES: list[Any] = [[], {}, [[]], {"": ""}, [None], {"type": "parse"}, {"a": {"b": {"c": []}}}, ["a", "a"]]
NUMBERS: list[Any] = [None, True, False, 0, 1, -1, 7.5, float("inf"), float("nan"), 10**30]
ODD: st.SearchStrategy[Any] = st.sampled_from([*WORDS, *SHAPES, *NUMBERS]) | st.text(max_size=6) | st.integers()
KEYS = st.sampled_from(["type", "x", "inputs", "a b", "*", "dead", "é", "stream", "when"]) | st.text(max_size=4)
PLAIN = string.ascii_letters + string.digits + " _.-%"
PIECES = ["", "\t", "{", "}", "[", ":", "'", '"', "&a ", "*a", "- ", "\n", "#", "é"]


def _paths(data: Any, at: KeyPath = ()) -> list[KeyPath]:
    found = [at]
    members = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in members:
        found += _paths(value, (*at, key))
    return found


def _at(data: Any, path: KeyPath) -> Any:
    return functools.reduce(lambda inside, step: inside[step], path, data)


@functools.cache
def _document(text: str) -> Any:
    return parse_yaml(text, "p.yaml").data


@st.composite
def mutated_documents(draw: st.DrawFn) -> Any:
    """A good document of which one to three values or keys are others."""
    data = copy.deepcopy(_document(draw(st.sampled_from(TEXTS))))
    for _ in range(draw(st.integers(1, 3))):
        paths = [path for path in _paths(data) if path]
        path = draw(st.sampled_from(paths)) if paths else ()
        if not path:
            break
        parent, key = _at(data, path[:-1]), path[-1]
        how = draw(st.sampled_from(("value", "remove", "rename", "copy", "add")))
        if how == "value":
            parent[key] = draw(ODD)
        elif how == "copy":  # a value from elsewhere in the file: the right shape in the wrong place
            parent[key] = copy.deepcopy(_at(data, draw(st.sampled_from(paths))))
        elif how == "remove":
            del parent[key]
        elif isinstance(parent, dict):
            value = parent[key] if how == "add" else parent.pop(key)
            parent[draw(KEYS)] = copy.deepcopy(value)
    return data


def _as_yaml(value: Any, indent: int = 0) -> str:
    """YAML in which each value has a line of its own, so that the lines of problems mean something."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        members = [f"{pad}{_scalar(str(key))}: {_as_yaml(inner, indent + 1)}" for key, inner in value.items()]
        return "\n" + "\n".join(members)
    if isinstance(value, list) and value:
        return "\n" + "\n".join(f"{pad}- {_as_yaml(inner, indent + 1)}" for inner in value)
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return '"' + "".join(char if char in PLAIN else f"\\U{ord(char):08x}" for char in value) + '"'
    if isinstance(value, float) and value != value:
        return ".nan"
    if value == float("inf"):
        return ".inf"
    return {None: "null", True: "true", False: "false"}[value] if value in (None, True, False) else str(value)


def _judged(text: str) -> Plan | None:
    """The plan, or None for a file that was refused as it should be."""
    try:
        return compile_pipeline(text, "p.yaml", environ={"LOGBOOM_MASK_KEY": "k" * 16, "SHOP_MASK_KEY": "k" * 16})
    except SettingsError as error:
        problems, told = error.problems, str(error)
    assert len(told.split("\n")) == len(problems) > 0, "a problem is one line"
    for problem in problems:
        assert problem.line is not None, problem
        assert 1 <= problem.line <= text.count("\n") + 1, problem
        assert problem.message.strip(), problem
        assert NOT_OURS.search(problem.message) is None, problem
    return None


def _run(plan: Plan) -> None:
    """What a run does with the plan before and on an executor, but for what Spark answers."""
    assert read_plan(plan.to_json()) == plan
    assert Layout(plan).finals()
    keys = {ref.id: b"k" * 16 for ref in plan.key_refs()}
    for node in plan.transforms:
        if isinstance(node, ParseTransform):
            batch = RECORDS
            for column, _ in node.record_conditions:
                batch = batch.append_column(column, pa.array([True] * batch.num_rows))
            events = node.run(batch, {})
            assert events.num_rows == RECORDS.num_rows
            for mask in plan.transforms:
                if isinstance(mask, MaskTransform):
                    assert mask.run(events, keys).num_rows == events.num_rows


@settings(max_examples=400, deadline=None)
@given(mutated_documents())
def test_a_document_with_other_values_is_judged_and_what_is_accepted_runs(data: Any) -> None:
    """`_judged` asserts that each problem has a line and a sentence of ours; `_run`, that no row is lost."""
    plan = _judged(_as_yaml(data).lstrip("\n"))
    if plan is not None:
        _run(plan)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TEXTS), st.data())
def test_a_text_with_other_characters_is_judged(text: str, data: st.DataObject) -> None:
    """As above, of texts that may be no YAML."""
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = at + data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.sampled_from(PIECES)) + text[until:]
    plan = _judged(text)
    if plan is not None:
        _run(plan)


@pytest.mark.parametrize("text", TEXTS)
def test_the_originals_are_right(text: str) -> None:
    plan = _judged(text)
    assert plan is not None
    _run(plan)
