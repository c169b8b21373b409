"""The document of a pipeline: included files and variables, and that what is wrong is told at its own file and line."""

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.config.document import FILE_BYTES_MAX, FILES_MAX, read_document
from logboom.pipeline.errors import PipelineError, placed, working_on
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.registry import read_plan
from logboom.pipeline.sinks.stream import StreamSink
from logboom.pipeline.transforms.sample import SampleTransform

MAIN = """\
name: shop
include: [parts/*.yaml]
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
"""
SAMPLED = """\
# the team of the shop
transforms:
  sampled: {type: sample, inputs: [parsed], rate: 10}
tests:
  - {name: kept, input: {source: web, value: '{}'}, expect: {at: out}}
"""
OUT = """\
sinks:
  out: {type: stream, inputs: [sampled], stream: out}
tests:
  - {name: sent, input: {source: web, value: '{}'}, expect: {at: out}}
"""


def write(directory: Path, **files: str) -> Path:
    (directory / "parts").mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / "parts" / f"{name}.yaml").write_text(text)
    return directory / "shop.yaml"


def plan_of(file: Path, text: str = MAIN, **variables: str) -> Plan:
    return compile_pipeline(text, str(file), variables=variables)


def problems_of(file: Path, text: str = MAIN, **variables: str) -> list[str]:
    with pytest.raises(SettingsError) as failed:
        plan_of(file, text, **variables)
    return str(failed.value).replace(f"{file.parent}/", "").splitlines()


def test_included_files_add_to_the_sections(tmp_path: Path) -> None:
    plan = plan_of(write(tmp_path, sampled=SAMPLED, out=OUT))
    assert [node.name for node in plan.nodes()] == ["web", "parsed", "sampled", "out"]
    assert [test.name for test in plan.tests] == ["sent", "kept"]
    whole = MAIN.replace("include: [parts/*.yaml]\n", "") + "".join((SAMPLED + OUT).split("tests:\n")[0][23:])
    whole += "sinks:\n  out: {type: stream, inputs: [sampled], stream: out}\n"
    whole = whole.replace("transforms:\n  sampled", "  sampled")
    assert plan.content_hash() == compile_pipeline(whole, "whole.yaml").content_hash()


def test_parts_of_included_files_know_where_they_stand(tmp_path: Path) -> None:
    file = write(tmp_path, sampled=SAMPLED, out=OUT)
    plan = plan_of(file)
    places = {node.name: node.place.replace(f"{tmp_path}/", "") for node in plan.nodes()}
    assert places == {
        "web": "line 4",
        "parsed": "line 6",
        "sampled": "line 3 of parts/sampled.yaml",
        "out": "line 2 of parts/out.yaml",
    }
    assert [str(test.in_file).replace(f"{tmp_path}/", "") for test in plan.tests] == [
        "parts/out.yaml",
        "parts/sampled.yaml",
    ]
    assert read_plan(plan.to_json()) == plan
    with pytest.raises(PipelineError) as failed:  # noqa: PT012 - as an executor does
        try:
            with working_on("transform sampled", plan.transforms[1].place):
                raise ValueError("broken")
        except ValueError as error:
            raise placed(error, plan.file) from error
    told = f"transform sampled (line 3 of {tmp_path}/parts/sampled.yaml) of {file} failed: ValueError: broken"
    assert str(failed.value) == told


def test_what_is_wrong_is_told_at_its_own_file_and_line(tmp_path: Path) -> None:
    bad_sample = SAMPLED.replace("rate: 10", "rate: 0").replace("expect: {at: out}", "expect: {at: ouch}")
    bad_sink = OUT.replace("inputs: [sampled]", "inputs: [sampld]")
    found = problems_of(
        write(tmp_path, sampled=bad_sample, out=bad_sink), MAIN.replace("format: json", "format: jason")
    )
    assert [line.split(": ")[0] for line in found] == [
        "shop.yaml:6",
        "parts/out.yaml:2",
        "parts/sampled.yaml:3",
        "parts/sampled.yaml:5",
    ]


def test_faults_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, a="sinks: [1", b="bootstrap: x\nsources: 7\n", c="- 1\n", d="sources: {web: 1}\n")
    found = problems_of(file, MAIN.replace("[parts/*.yaml]", "[parts/*.yaml, gone.yaml, parts/a.yaml, 'no*']"))
    sections = "patterns, sources, transforms, sinks, tests"
    assert found == [
        "shop.yaml:2: include: gone.yaml cannot be read: No such file or directory",
        "shop.yaml:2: include: parts/a.yaml is already included",
        "shop.yaml:2: include: no file matches 'no*'",
        found[3],
        f"parts/b.yaml:1: bootstrap: must be in the pipeline's own file; an included one may have {sections}, include",
        "parts/b.yaml:2: sources: should be a group of keys and values",
        "parts/c.yaml:1: should be groups of keys and values: patterns, sources, transforms, sinks, tests",
        "parts/d.yaml:1: sources.web: is already in shop.yaml:4",
    ]
    assert found[3].startswith("parts/a.yaml:")


def test_files_that_include_each_other_end(tmp_path: Path) -> None:
    (found,) = problems_of(write(tmp_path, a="include: a.yaml\n"))
    assert found == "parts/a.yaml:1: include: parts/a.yaml is already included"


def test_what_can_be_no_part_of_a_file_is_told(tmp_path: Path) -> None:
    """A pipe has no end, nor has /dev/zero: reading either would stop the check, or fill the memory."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "large").write_bytes(b" " * (FILE_BYTES_MAX + 1))
    names = ("pipe", "/dev/zero", "ring", "large", ".", '"**x"', '"\\0"')
    included = f"include: [{', '.join(names)}]"
    assert problems_of(tmp_path / "shop.yaml", MAIN.replace("include: [parts/*.yaml]", included)) == [
        "shop.yaml:2: include: pipe cannot be read: it is not a regular file",
        "shop.yaml:2: include: /dev/zero cannot be read: it is not a regular file",
        "shop.yaml:2: include: ring cannot be read: it is a link that leads to itself",
        "shop.yaml:2: include: large cannot be read: it has more than 16 MiB",
        f"shop.yaml:2: include: {tmp_path} cannot be read: it is a directory",
        "shop.yaml:2: include: '**x' is not a valid pattern of names: '**' has to be alone between slashes",
        "shop.yaml:2: include: should be the name of a file",
    ]


def test_what_is_merged_into_an_included_file_has_its_line(tmp_path: Path) -> None:
    out = "\nsinks:\n  <<: {out: {type: nope, inputs: [parsed]}}\n"
    told = problems_of(write(tmp_path, out=out), MAIN + "sinks:\n  b: {type: console, inputs: [parsed]}\n")
    assert [line.partition(" ")[0] for line in told] == ["parts/out.yaml:2:"]


def test_there_is_a_bound_on_files(tmp_path: Path) -> None:
    files = {f"f{number:03}": "" for number in range(FILES_MAX)}
    (found,) = problems_of(write(tmp_path, **files))
    assert found.endswith(f"includes more than {FILES_MAX} files")


VARIABLES = """\
name: ${NAME}
sources:
  web: {type: stream, stream: "${STREAM:-web}"}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  sampled:
    type: sample
    inputs: [parsed]
    rate: ${RATE:-10}
sinks:
  out: {type: stream, inputs: [sampled], stream: "${NAME}-out"}
"""


def sample_and_sink(plan: Plan) -> tuple[SampleTransform, StreamSink]:
    (sample,) = (node for node in plan.transforms if isinstance(node, SampleTransform))
    (sink,) = plan.sinks
    assert isinstance(sink, StreamSink)
    return sample, sink


def test_variables_stand_in_values(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "shop.yaml", VARIABLES, NAME="shop", RATE="25", STREAM="")
    sample, sink = sample_and_sink(plan)
    assert (plan.name, sample.rate, sink.stream) == ("shop", 25.0, "shop-out")
    assert plan.sources[0].streams == ("web",)


def test_variables_stand_in_included_files_too(tmp_path: Path) -> None:
    file = write(tmp_path, sampled=SAMPLED.replace("rate: 10", "rate: '${RATE}'"), out=OUT)
    assert sample_and_sink(plan_of(file, RATE="7"))[0].rate == 7.0
    (problem,) = problems_of(file, RAT="7")
    assert problem == (
        "parts/sampled.yaml:3: transforms.sampled.rate: the environment variable RATE is not set (did you mean RAT? "
        "${RATE:-...} gives a default)"
    )


def test_a_value_is_no_yaml(tmp_path: Path) -> None:
    found = problems_of(tmp_path / "shop.yaml", VARIABLES, NAME="x\nsinks: {}", RATE="1")
    assert any("should be letters, digits" in line for line in found)


def test_values_that_are_wrong_are_told_at_the_line_of_the_variable(tmp_path: Path) -> None:
    found = problems_of(tmp_path / "shop.yaml", VARIABLES, NAME="shop", RATE="few")
    assert found == ["shop.yaml:9: transforms.sampled.rate: should be a number, got 'few'"]


def test_a_variable_that_is_no_text_is_told(tmp_path: Path) -> None:
    """A plan is kept as JSON, which has no such characters."""
    found = problems_of(tmp_path / "shop.yaml", VARIABLES, NAME=os.fsdecode(b"sh\xffp"), RATE="2")
    assert len(found) > 0
    assert all(told.endswith("the environment variable NAME has bytes that are not UTF-8") for told in found)


def test_two_dollars_are_no_variable(tmp_path: Path) -> None:
    text = VARIABLES.replace("${NAME}-out", "out").replace("${NAME}", "shop")
    text += "tests: [{name: t, input: {source: web, value: 'a $${HOME} ${} $x'}, expect: {at: dead}}]\n"
    assert plan_of(tmp_path / "shop.yaml", text).tests[0].inputs[0].value == "a ${HOME} ${} $x"


def test_without_variables_nothing_is_put_in() -> None:
    assert read_document("a: ${HOME}", "shop.yaml").data == {"a": "${HOME}"}


@pytest.mark.parametrize(
    "line", ["password: ${PW}", "url: 'https://ann:${SHOP_PASSWORD}@host'", "headers: {Authorization: '${A}'}"]
)
def test_secrets_are_refused(line: str) -> None:
    with pytest.raises(SettingsError, match="must not hold a secret") as failed:
        read_document(line, "shop.yaml", {"PW": "pssst", "SHOP_PASSWORD": "pssst", "A": "pssst"})
    assert "pssst" not in str(failed.value)


def test_names_of_variables_that_hold_secrets_may_be_given() -> None:
    assert read_document("password_env: ${WHERE}", "shop.yaml", {"WHERE": "PW"}).data == {"password_env": "PW"}


PIECES = (
    "&a ",
    "*a",
    "<<: {a: 1}\n",
    "!!binary ",
    "---\n",
    "\t",
    "\ufeff",
    "\x85",
    "\u2028",
    "\0",
    "${NAME}",
    "${",
    "{",
    "]",
    "'",
)
INCLUDED = ("*", "**/*.yaml", "../*", ".", "parts", "shop.yaml", "/dev/null", "~/x", "a" * 300, "${NAME}/*", "[a", "5")
TEXTS = {"shop": VARIABLES, "parts/sampled": SAMPLED, "parts/out": OUT}


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_whatever_several_files_say_each_fault_has_a_line_of_its_own_file(data: st.DataObject) -> None:
    texts = dict(TEXTS)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(texts)))
        lines = texts[name].splitlines(keepends=True)
        at = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(("remove", "repeat", "piece", "include")))
        if change == "remove":
            del lines[at]
        elif change == "repeat":
            lines.insert(at, data.draw(st.sampled_from(lines)))
        elif change == "include":
            lines.insert(at, f"include: [{data.draw(st.sampled_from(INCLUDED))}]\n")
        else:
            column = data.draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:column] + data.draw(st.sampled_from(PIECES)) + lines[at][column:]
        texts[name] = "".join(lines) or "\n"
    with TemporaryDirectory() as parent:
        directory = Path(parent, "pipelines")  # nobody else's files are beside it
        directory.mkdir()
        file = write(directory, **{name.removeprefix("parts/"): text for name, text in texts.items()})
        try:
            plan = plan_of(file, texts["shop"], NAME="n", RATE="2")
        except SettingsError as error:
            problems = error.problems
        else:
            assert read_plan(plan.to_json()) == plan
            return
    assert problems
    for problem in problems:
        name = "shop" if problem.file is None else str(Path(problem.file).relative_to(directory)).removesuffix(".yaml")
        assert problem.line is not None, problem
        assert 1 <= problem.line <= len(re.split("\r\n|[\r\n\x85\u2028\u2029]", texts[name])), problem
