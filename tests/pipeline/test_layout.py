"""A plan's graph as places and steps: every record has somewhere to go, and folding changes no destination."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.mask.rules import MaskRule
from logboom.pipeline.parse.formats.json import JsonFormat
from logboom.pipeline.parse.rule import ParseRule
from logboom.pipeline.plan.layout import FINAL_FROM, KernelPass, Layer, Layout
from logboom.pipeline.plan.nodes import Plan, Sink, StreamSource, Transform
from logboom.pipeline.plan.outcomes import FAILED, FALSE, TRUE
from logboom.pipeline.plan.sql_text import bracketed
from logboom.pipeline.route.routing import route_rows
from logboom.pipeline.route.rows import Rows
from logboom.pipeline.sinks.console import ConsoleSink
from logboom.pipeline.sinks.stream import StreamSink
from logboom.pipeline.transforms.filter import FilterTransform
from logboom.pipeline.transforms.mask import MaskTransform
from logboom.pipeline.transforms.parse import ParseTransform
from logboom.pipeline.transforms.route import Route, RouteTransform
from logboom.pipeline.transforms.sample import SampleTransform


def _parse(name: str, *inputs: str) -> ParseTransform:
    return ParseTransform(name=name, line=1, inputs=inputs, rules=(ParseRule(label="j", line=1, format=JsonFormat()),))


def _filter(name: str, source: str, condition: str | None = None) -> FilterTransform:
    return FilterTransform(name=name, line=1, inputs=(source,), condition=condition or f"keep_{name}")


def _mask(name: str, source: str) -> MaskTransform:
    rules = (MaskRule(label="email", line=1, kind="email", action="redact"),)
    return MaskTransform(name=name, line=1, inputs=(source,), rules=rules)


def _route(name: str, source: str, *routes: str) -> RouteTransform:
    made = tuple(Route(name=route, line=1, condition=f"is_{route}") for route in routes)
    return RouteTransform(name=name, line=1, inputs=(source,), routes=made)


def _plan(transforms: tuple[Transform, ...], sinks: tuple[Sink, ...]) -> Plan:
    source = StreamSource(name="web", line=1, streams=("web",))
    return Plan(name="p", file="p.yaml", checkpoint="c", sources=(source,), transforms=transforms, sinks=sinks)


def _stream(name: str, *inputs: str) -> StreamSink:
    return StreamSink(name=name, line=1, inputs=inputs, stream=name)


def _console(name: str, *inputs: str) -> ConsoleSink:
    return ConsoleSink(name=name, line=1, inputs=inputs)


def _walk(layout: Layout, verdicts: dict[str, int]) -> list[str]:
    """Where one event of `web` ends, as text, when each condition has the value of `verdicts`."""
    at = [layout.entries["web"]]
    for step in layout.steps:
        if isinstance(step, KernelPass):
            for node in step.nodes:
                at = [node.leaves if code in node.arrivals else code for code in at]
        elif isinstance(step, Layer):
            at = [after for code in at for after in _routed(step, code, verdicts)]
    places = {place.code: place for place in layout.places}
    assert all(code < 0 or code >= FINAL_FROM for code in at), "a record is left on its way"
    return sorted(f"{places[code].kind} {places[code].edge or places[code].node}" for code in at)


def _routed(layer: Layer, code: int, verdicts: dict[str, int]) -> list[int]:
    """Where the layer itself sends one row for which Spark has given these verdicts."""
    given = {condition.column: verdicts.get(condition.sql, FALSE) for condition in layer.conditions}
    batch = pa.RecordBatch.from_pydict({"n": [0], **{column: pa.array([value]) for column, value in given.items()}})
    rows, _ = route_rows(Rows(batch, np.array([code], np.int32)), layer, answered=True)
    after: list[int] = rows.at.tolist()
    return after


SHOP = _plan(
    (
        _parse("parsed", "web"),
        _mask("masked", "parsed"),
        _filter("clean", "masked", "clean"),
        _route("split", "clean", "errors", "access"),
        SampleTransform(name="sampled", line=1, inputs=("split.unmatched",), rate=10),
    ),
    (
        _console("archive", "clean"),
        _stream("errors", "split.errors"),
        _console("access", "split.access"),
        _stream("rest", "sampled"),
    ),
)


def test_parse_and_mask_share_a_pass_and_filter_fan_and_route_one_layer() -> None:
    first, second, third = Layout(SHOP).steps
    assert isinstance(first, KernelPass)
    assert [node.transform.name for node in first.nodes] == ["parsed", "masked"]
    assert isinstance(second, Layer)
    assert len(second.conditions) == 3
    assert isinstance(third, Layer)


def test_an_event_takes_every_route_whose_condition_is_true() -> None:
    taken = _walk(Layout(SHOP), {"clean": TRUE, "is_errors": TRUE, "is_access": TRUE})
    assert taken == ["direct split.errors", "edge clean", "edge split.access"]


def test_an_event_no_route_takes_is_unmatched() -> None:
    keep = next(
        condition.sql for step in Layout(SHOP).steps[2:] if isinstance(step, Layer) for condition in step.conditions
    )
    assert _walk(Layout(SHOP), {"clean": TRUE, keep: TRUE}) == ["direct sampled", "edge clean"]
    assert _walk(Layout(SHOP), {"clean": TRUE}) == ["dropped sampled", "edge clean"]


def test_a_dropped_event_counts_under_the_rule() -> None:
    assert _walk(Layout(SHOP), {"is_errors": TRUE}) == ["dropped clean"]


def test_a_condition_that_fails_makes_a_dead_letter_of_its_stage() -> None:
    assert _walk(Layout(SHOP), {"clean": FAILED}) == ["dead clean"]
    both = _walk(Layout(SHOP), {"clean": TRUE, "is_errors": FAILED, "is_access": TRUE})
    assert both == ["dead split", "edge clean", "edge split.access"]


def test_events_of_an_edge_without_a_sink_are_counted_as_dropped_under_its_name() -> None:
    plan = _plan((_parse("parsed", "web"), _route("split", "parsed", "a")), (_stream("a", "split.a"),))
    assert _walk(Layout(plan), {}) == ["dropped split.unmatched"]


def test_two_sinks_of_an_edge_share_its_stream() -> None:
    plan = _plan((_parse("parsed", "web"),), (_console("one", "parsed"), _console("two", "parsed")))
    assert _walk(Layout(plan), {}) == ["edge parsed"]


def test_the_same_plan_gets_the_same_places() -> None:
    assert Layout(SHOP).places == Layout(SHOP).places


def test_final_places_follow_each_other_without_a_gap() -> None:
    codes = sorted(place.code for place in Layout(SHOP).finals())
    assert codes == list(range(FINAL_FROM, FINAL_FROM + len(codes)))


@st.composite
def _plans(draw: st.DrawFn) -> Plan:
    transforms: list[Transform] = [_parse("t0", "web")]
    edges = ["t0"]
    for number in range(1, draw(st.integers(1, 6))):
        name, source = f"t{number}", draw(st.sampled_from(edges))
        made = draw(st.sampled_from(("filter", "mask", "route", "sample")))
        if made == "filter":
            transforms.append(_filter(name, source))
        elif made == "mask":
            transforms.append(_mask(name, source))
        elif made == "sample":
            transforms.append(SampleTransform(name=name, line=1, inputs=(source,), rate=2, key=f"key_{name}"))
        else:
            transforms.append(_route(name, source, f"{name}a", f"{name}b"))
        edges += transforms[-1].outputs
    sinks: list[Sink] = [
        (_stream if draw(st.booleans()) else _console)(f"s{number}", draw(st.sampled_from(edges)))
        for number in range(draw(st.integers(1, 4)))
    ]
    return _plan(tuple(transforms), tuple(sinks))


def _by_the_graph(plan: Plan, edge: str, verdicts: dict[str, int]) -> list[str]:
    """The same, node by node, without places or folding."""
    consumers = plan.consumers(edge)
    found = sorted({f"edge {edge}" for one in consumers if isinstance(one, ConsoleSink)})
    found += [f"direct {edge}" for one in consumers if isinstance(one, StreamSink)]
    for one in consumers:
        match one:
            case ParseTransform() | MaskTransform():
                found += _by_the_graph(plan, one.name, verdicts)
            case FilterTransform():
                kept = verdicts.get(one.condition, FALSE) == TRUE
                found += _by_the_graph(plan, one.name, verdicts) if kept else [f"dropped {one.name}"]
            case SampleTransform():
                found += _by_the_graph(plan, one.name, verdicts) if verdicts[one.name] else [f"dropped {one.name}"]
            case RouteTransform():
                taken = [f"{one.name}.{at.name}" for at in one.routes if verdicts.get(at.condition, FALSE) == TRUE]
                for output in taken or [one.outputs[-1]]:
                    found += _by_the_graph(plan, output, verdicts)
    return found or [f"dropped {edge}"]


@settings(max_examples=150, deadline=None)
@given(_plans(), st.data())
def test_every_event_ends_where_the_graph_says(plan: Plan, data: st.DataObject) -> None:
    layout = Layout(plan)
    verdicts: dict[str, int] = {}
    for step in layout.steps:
        for condition in step.conditions if isinstance(step, Layer) else ():
            verdicts[condition.sql] = data.draw(st.sampled_from((TRUE, FALSE)))
    for transform in plan.transforms:
        if isinstance(transform, SampleTransform):
            sql = next((sql for sql in verdicts if bracketed(f"key_{transform.name}") in sql), None)
            verdicts[transform.name] = verdicts.get(sql or "", FALSE)
    assert _walk(layout, verdicts) == sorted(_by_the_graph(plan, "web", verdicts))


@pytest.mark.parametrize("sink", [_stream("s", "parsed"), _console("s", "parsed")])
def test_what_is_too_large_for_a_sink_goes_to_its_dead_letters(sink: Sink) -> None:
    layout = Layout(_plan((_parse("parsed", "web"),), (sink,)))
    (dead,) = layout.oversize.values()
    assert layout.place(dead).kind == "dead"
    assert layout.place(dead).node == "s"
