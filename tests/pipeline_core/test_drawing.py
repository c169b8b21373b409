"""A pipeline as a picture: every node and edge once, no box over another, and documents that can be read."""

import re
from pathlib import Path
from xml.etree import ElementTree

from typer.testing import CliRunner

from logboom.cli.pipeline import pipeline
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.drawing.graph import Arrow, graph_of
from logboom.pipeline.drawing.mermaid import mermaid
from logboom.pipeline.drawing.svg import svg

FILE = Path(__file__).parents[2] / "examples" / "demo" / "pipeline.yaml"


def test_every_node_and_edge_of_the_demo_is_there_once() -> None:
    plan = compile_pipeline(FILE.read_text(), str(FILE))
    graph = graph_of(plan)
    names = [box.name for column in graph.columns for box in column]
    assert sorted(names) == sorted(node.name for node in plan.nodes())
    column = {box.name: at for at, boxes in enumerate(graph.columns) for box in boxes}
    assert all(column[arrow.start] < column[arrow.end] for arrow in graph.arrows)
    assert Arrow("split", "error_stream", "errors") in graph.arrows
    assert len(graph.arrows) == sum(len(node.inputs) for node in (*plan.transforms, *plan.sinks))


def test_boxes_lie_beside_each_other() -> None:
    plan = compile_pipeline(FILE.read_text(), str(FILE))
    root = ElementTree.fromstring(svg(graph_of(plan), "a < b"))
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title") == "a < b"
    boxes = [
        tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height")) for rect in root.iter(f"{space}rect")
    ]
    assert len(boxes) == len(list(plan.nodes()))
    wide, high = (float(root.attrib[key]) for key in ("width", "height"))
    for number, (x, y, width, height) in enumerate(boxes):
        assert 0 <= x <= x + width <= wide
        assert 0 <= y <= y + height <= high
        for other in boxes[number + 1 :]:
            apart = x + width < other[0] or other[0] + other[2] < x or y + height < other[1] or other[1] + other[3] < y
            assert apart


PASSING = """
name: passing
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split: {type: route, inputs: [parsed], routes: {bad: "severity_number >= 17", odd: "body IS NULL"}}
  sampled: {type: sample, inputs: [split.unmatched], rate: 10}
sinks:
  far: {type: console, inputs: [parsed, sampled, split.odd]}
  both: {type: console, inputs: [split.bad, split.odd]}
"""


def test_no_arrow_passes_behind_a_box_and_no_name_of_an_output_lies_on_another() -> None:
    root = ElementTree.fromstring(svg(graph_of(compile_pipeline(PASSING, "passing.yaml")), "passing"))
    space = "{http://www.w3.org/2000/svg}"
    labels = [text for text in root.iter(f"{space}text") if text.get("class") == "label"]
    assert sorted(text.text or "" for text in labels) == ["bad, odd", "odd", "unmatched"]
    assert len({(text.get("x"), text.get("y")) for text in labels}) == len(labels)
    boxes = [[float(rect.attrib[key]) for key in ("x", "y", "width", "height")] for rect in root.iter(f"{space}rect")]
    straight = 0
    for path in root.iter(f"{space}path"):
        for before, end in re.findall(r" ([\d.]+)H([\d.]+)", path.attrib["d"]):
            straight += 1
            assert not any(
                x < float(end) - 1 and float(end) <= x + wide and y <= float(before) <= y + high
                for x, y, wide, high in boxes
            )
    assert straight == 3, "one arrow passes two columns, and one a single column"


def test_the_command_writes_either(tmp_path: Path) -> None:
    run = CliRunner().invoke
    done = run(pipeline, ["graph", str(FILE)])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("flowchart LR\n")
    assert '[("archive<br/>parquet")]' in done.stdout
    assert "-->|errors|" in done.stdout
    assert mermaid(graph_of(compile_pipeline(FILE.read_text(), str(FILE)))) == done.stdout
    assert run(pipeline, ["graph", str(FILE), "--out", str(tmp_path / "g.svg")]).exit_code == 0
    assert ElementTree.parse(tmp_path / "g.svg").getroot().tag.endswith("svg")
    assert run(pipeline, ["graph", str(FILE), "--out", str(tmp_path / "g.mmd")]).exit_code == 0
    assert (tmp_path / "g.mmd").read_text() == done.stdout
    assert "should end in .svg or .mmd" in str(run(pipeline, ["graph", str(FILE), "--out", "g.png"]).exception)
