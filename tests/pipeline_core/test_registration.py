"""Formats and transforms register themselves by being in their folders, and the documentation names each of them."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.pipeline_core.batches import raw

from logboom.base.settings import SettingsError
from logboom.pipeline import transforms
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute.local import LazyCatalyst, LocalFlow
from logboom.pipeline.parse import formats
from logboom.pipeline.parse.formats.base import FormatNode
from logboom.pipeline.parse.formats.registry import format_types
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import KernelTransform, RoutingTransform
from logboom.pipeline.registry import read_plan
from logboom.pipeline.sinks.registry import sink_types
from logboom.pipeline.transforms.registry import transform_types

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"

LABELS = '''
"""The format `example_labels`: `label:value` between tabs."""

from typing import Literal

from logboom.pipeline.parse.formats.base import FormatNode, FormatType, RuleModel
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE, text_lines


class LabelsRuleModel(RuleModel):
    """Labelled values between tabs."""

    format: Literal["example_labels"]
    absent: str = "-"


class LabelsFormat(FormatNode, frozen=True, kw_only=True, tag="example_labels"):
    absent: str

    def read_rows(self, values):
        return [self._row(line) for line in text_lines(values).to_pylist()]

    def _row(self, line):
        if not line:
            return NO_VALUE if line is None else EMPTY
        parts = [part.partition(":") for part in line.split("\\t")]
        if not all(colon for _, colon, _ in parts):
            return "a part has no label"
        return {label: value for label, _, value in parts if value != self.absent}


def _compile(model, part):
    if not model.absent:
        part.problem("absent", "should not be empty")
        return None
    return LabelsFormat(absent=model.absent)


FORMATS = (FormatType("example_labels", LabelsRuleModel, LabelsFormat, _compile),)
'''

UPPER = '''
"""The transform `example_upper`: writes the body in capitals, unless the event is a debug line."""

from typing import Literal

import pyarrow.compute as pc

from logboom.pipeline.plan.nodes import KernelTransform
from logboom.pipeline.transforms.base import TransformModel, TransformType


class UpperModel(TransformModel):
    """Capitals."""

    type: Literal["example_upper"]


class UpperTransform(KernelTransform, frozen=True, kw_only=True, tag="example_upper"):
    def run(self, batch, keys):
        index = batch.schema.get_field_index("body")
        return batch.set_column(index, "body", pc.utf8_upper(batch.column(index)))


TRANSFORM = TransformType(
    "example_upper", UpperModel, UpperTransform, lambda model, common, part: UpperTransform(**common)
)
'''

ERRORS_ONLY = '''
"""The transform `example_errors`: a filter whose condition is its own."""

from typing import Literal

from logboom.pipeline.plan.nodes import RoutingTransform
from logboom.pipeline.plan.outcomes import Choice
from logboom.pipeline.transforms.base import TransformModel, TransformType


class ErrorsOnlyModel(TransformModel):
    """Errors alone."""

    type: Literal["example_errors"]


class ErrorsOnlyTransform(RoutingTransform, frozen=True, kw_only=True, tag="example_errors"):
    def outcome(self, layer):
        errors = layer.condition("severity_number >= 17")
        return Choice(errors, layer.follow(self.name), layer.dropped(), layer.dead("its level is unknown"))


TRANSFORM = TransformType(
    "example_errors", ErrorsOnlyModel, ErrorsOnlyTransform, lambda model, common, part: ErrorsOnlyTransform(**common)
)
'''

ADDED = (
    f"{formats.__name__}.example_labels",
    f"{transforms.__name__}.example_upper",
    f"{transforms.__name__}.example_errors",
)

PIPELINE = """\
name: t
sources: {s: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [s], rules: [{format: example_labels, absent: none}]}
  loud: {type: example_upper, inputs: [parsed]}
  errors: {type: example_errors, inputs: [loud]}
sinks: {out: {type: console, inputs: [errors]}}
"""


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three files more in the folders of formats and transforms, and nothing else edited."""
    _add(monkeypatch, formats, tmp_path / "formats", example_labels=LABELS)
    _add(monkeypatch, transforms, tmp_path / "transforms", example_upper=UPPER, example_errors=ERRORS_ONLY)
    _forget()
    yield
    monkeypatch.undo()
    for name in (
        f"{formats.__name__}.example_labels",
        f"{transforms.__name__}.example_upper",
        f"{transforms.__name__}.example_errors",
    ):
        sys.modules.pop(name, None)
    _forget()


def _add(monkeypatch: pytest.MonkeyPatch, package: ModuleType, directory: Path, **modules: str) -> None:
    directory.mkdir()
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(directory)])


def _forget() -> None:
    format_types.cache_clear()
    transform_types.cache_clear()


@pytest.mark.usefixtures("added")
def test_a_file_in_the_folder_is_a_format_or_a_transform() -> None:
    plan = compile_pipeline(PIPELINE, "p.yaml")
    assert read_plan(plan.to_json()) == plan
    layout = Layout(plan)
    places = {place.code: f"{place.kind} {place.edge or place.node}" for place in layout.places}
    lines = [b"level:error\tmsg:no room\tuser:none", b"level:info\tmsg:fine", b"level error"]
    with LazyCatalyst() as spark:
        flow = LocalFlow(layout, {}, spark)
        rows = flow.rows(raw(lines)).to_pylist()
    assert [(places[row["at"]], row["body"], row["dead_reason"]) for row in rows] == [
        ("edge errors", "NO ROOM", None),
        ("dropped errors", "FINE", None),
        ("dead parsed", None, "example_labels: a part has no label"),
    ]
    assert rows[0]["attributes"] == "{}"


@pytest.mark.usefixtures("added")
def test_what_is_wrong_with_its_keys_is_told_as_for_any_other() -> None:
    text = PIPELINE.replace("format: example_labels, absent: none", "format: example_labels, absent: '', columns: [a]")
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(text.replace("type: example_upper", "type: exmple_upper"), "p.yaml")
    assert str(caught.value).split("\n") == [
        "p.yaml:4: transforms.parsed.rules[0].columns: goes with format csv, not with example_labels",
        "p.yaml:4: transforms.parsed.rules[0].absent: should not be empty",
        "p.yaml:5: transforms.loud.type: unknown type 'exmple_upper' (did you mean 'example_upper'?)",
    ]


def test_a_plan_with_a_kind_that_this_version_lacks_is_no_plan() -> None:
    known = PIPELINE.replace("example_labels, absent: none", "json")
    for example in ("example_upper", "example_errors"):
        known = known.replace(example, "filter, condition: 'true'")
    text = compile_pipeline(known, "p.yaml").to_json()
    with pytest.raises(ValueError, match="no transform of type 'translate'"):
        read_plan(text.replace('"type":"filter"', '"type":"translate"'))
    with pytest.raises(ValueError, match="no sink of type 'fax'"):
        read_plan(text.replace('"type":"console"', '"type":"fax"'))
    with pytest.raises(ValueError, match="'example_labels'"):
        read_plan(text.replace('"type":"json"', '"type":"example_labels"'))


def test_the_documentation_has_every_format_transform_and_sink() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("### Formats") : page.index("### Patterns")]
    named = {name for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(format_types())
    assert set(transform_types()) <= set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    sinks = page[page.index("## Sinks") : page.index("## Tests")]
    assert set(re.findall(r"^\| `(\w+)` \|", sinks, re.MULTILINE)) == set(sink_types())


def test_a_node_that_leaves_out_its_work_cannot_be_made() -> None:
    class Unreadable(FormatNode, frozen=True, tag="example_unreadable"):
        pass

    class Idle(KernelTransform, frozen=True, kw_only=True, tag="example_idle"):
        pass

    class Undecided(RoutingTransform, frozen=True, kw_only=True, tag="example_undecided"):
        pass

    for kind, fields, method in (
        (Unreadable, {}, "read_rows"),
        (Idle, {"name": "t", "inputs": ("a",)}, "run"),
        (Undecided, {"name": "t", "inputs": ("a",)}, "outcome"),
    ):
        node: Any = kind
        with pytest.raises(TypeError, match=f"abstract method '{method}'"):
            node(**fields)
