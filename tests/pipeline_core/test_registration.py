"""Formats and transforms register themselves by being in their folders, and the documentation names each of them."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.pipeline_core.batches import raw

from logboom.base.settings import SettingsError
from logboom.pipeline import transforms
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute.local import LocalFlow
from logboom.pipeline.parse import formats
from logboom.pipeline.parse.formats.registry import format_types
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.registry import read_plan
from logboom.pipeline.sinks.registry import sink_types
from logboom.pipeline.transforms.registry import transform_types

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"

LTSV = '''
"""The format `ltsv`: `label:value` between tabs (http://ltsv.org)."""

from typing import Literal

import msgspec

from logboom.pipeline.parse.formats.base import Format, FormatType, RuleModel
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE, text_lines


class LtsvRuleModel(RuleModel):
    """Labelled values between tabs."""

    format: Literal["ltsv"]
    absent: str = "-"


class LtsvFormat(Format, msgspec.Struct, frozen=True, kw_only=True, tag="ltsv"):
    absent: str

    def rows(self, values):
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
    return LtsvFormat(absent=model.absent)


FORMATS = (FormatType("ltsv", LtsvRuleModel, LtsvFormat, _compile),)
'''

UPPER = '''
"""The transform `upper`: writes the body in capitals, unless the event is a debug line."""

from typing import Literal

import pyarrow.compute as pc

from logboom.pipeline.plan.nodes import KernelTransform
from logboom.pipeline.transforms.base import TransformModel, TransformType


class UpperModel(TransformModel):
    """Capitals."""

    type: Literal["upper"]


class UpperTransform(KernelTransform, frozen=True, kw_only=True, tag="upper"):
    def run(self, batch, keys):
        index = batch.schema.get_field_index("body")
        return batch.set_column(index, "body", pc.utf8_upper(batch.column(index)))


TRANSFORM = TransformType("upper", UpperModel, UpperTransform, lambda model, common, part: UpperTransform(**common))
'''

ERRORS_ONLY = '''
"""The transform `errors_only`: a filter whose condition is its own."""

from typing import Literal

from logboom.pipeline.plan.nodes import RoutingTransform
from logboom.pipeline.plan.outcomes import Choice
from logboom.pipeline.transforms.base import TransformModel, TransformType


class ErrorsOnlyModel(TransformModel):
    """Errors alone."""

    type: Literal["errors_only"]


class ErrorsOnlyTransform(RoutingTransform, frozen=True, kw_only=True, tag="errors_only"):
    def outcome(self, layer):
        errors = layer.condition("severity_number >= 17")
        return Choice(errors, layer.follow(self.name), layer.dropped(), layer.dead())


TRANSFORM = TransformType(
    "errors_only", ErrorsOnlyModel, ErrorsOnlyTransform, lambda model, common, part: ErrorsOnlyTransform(**common)
)
'''

PIPELINE = """\
name: t
sources: {s: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [s], rules: [{format: ltsv, absent: none}]}
  loud: {type: upper, inputs: [parsed]}
  errors: {type: errors_only, inputs: [loud]}
sinks: {out: {type: console, inputs: [errors]}}
"""


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three files more in the folders of formats and transforms, and nothing else edited."""
    _add(monkeypatch, formats, tmp_path / "formats", ltsv=LTSV)
    _add(monkeypatch, transforms, tmp_path / "transforms", upper=UPPER, errors_only=ERRORS_ONLY)
    _forget()
    yield
    monkeypatch.undo()
    for name in (f"{formats.__name__}.ltsv", f"{transforms.__name__}.upper", f"{transforms.__name__}.errors_only"):
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
    with LocalFlow(layout, {}) as flow:
        rows = flow.rows(raw(lines)).to_pylist()
    assert [(places[row["at"]], row["body"], row["dead_reason"]) for row in rows] == [
        ("edge errors", "NO ROOM", None),
        ("dropped errors", "FINE", None),
        ("dead parsed", None, "ltsv: a part has no label"),
    ]
    assert rows[0]["attributes"] == "{}"


@pytest.mark.usefixtures("added")
def test_what_is_wrong_with_its_keys_is_told_as_for_any_other() -> None:
    text = PIPELINE.replace("format: ltsv, absent: none", "format: ltsv, absent: '', columns: [a]")
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(text.replace("type: upper", "type: uper"), "p.yaml")
    assert str(caught.value).split("\n") == [
        "p.yaml:4: transforms.parsed.rules[0].columns: goes with format csv, not with ltsv",
        "p.yaml:4: transforms.parsed.rules[0].absent: should not be empty",
        "p.yaml:5: transforms.loud.type: unknown type 'uper' (did you mean 'upper'?)",
    ]


def test_a_plan_with_a_kind_that_this_version_lacks_is_no_plan() -> None:
    text = compile_pipeline(PIPELINE.replace("ltsv, absent: none", "json").replace("upper", "filter, condition: 'true'")
                            .replace("errors_only", "filter, condition: 'true'"), "p.yaml").to_json()  # fmt: skip
    with pytest.raises(ValueError, match="no transform of type 'enrich'"):
        read_plan(text.replace('"type":"filter"', '"type":"enrich"'))
    with pytest.raises(ValueError, match="no sink of type 'fax'"):
        read_plan(text.replace('"type":"console"', '"type":"fax"'))
    with pytest.raises(ValueError, match="'ltsv'"):
        read_plan(text.replace('"type":"json"', '"type":"ltsv"'))


def test_the_documentation_has_every_format_transform_and_sink() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("### Formats") : page.index("### Patterns")]
    named = {name for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(format_types())
    assert set(transform_types()) <= set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    sinks = page[page.index("## Sinks") : page.index("## Tests")]
    assert set(re.findall(r"^\| `(\w+)` \|", sinks, re.MULTILINE)) == set(sink_types())
