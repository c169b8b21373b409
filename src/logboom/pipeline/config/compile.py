"""From a pipeline's YAML to its plan, with all problems reported together.

It knows the order of the steps: document, parts, names, graph, shapes, SQL. It must not know Spark: SQL is checked by a
checker that the caller passes in.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from logboom.base.settings import (
    BOOTSTRAP_DEFAULT,
    Problem,
    SettingsError,
    YamlDocument,
    split_bootstrap,
)
from logboom.pipeline.config.checkpoints import checkpoint_place, files_of
from logboom.pipeline.config.credentials import check_credentials
from logboom.pipeline.config.directories import DirectoryCheck, check_keys, check_tables
from logboom.pipeline.config.document import read_document
from logboom.pipeline.config.graph import Graph, arrange, check_names
from logboom.pipeline.config.model import PipelineModel
from logboom.pipeline.config.parts import TestPlaces, sink_part, source_part, test_part, transform_part
from logboom.pipeline.config.streams import StreamCheck
from logboom.pipeline.findings import Findings
from logboom.pipeline.parse.grok import PatternError, check_re2, expand
from logboom.pipeline.plan.names import STREAM_NAME
from logboom.pipeline.plan.nodes import (
    Expression,
    PipelineTest,
    Plan,
    Sink,
    StreamSource,
    Transform,
)
from logboom.pipeline.plan.stores import store_fault
from logboom.pipeline.transforms.dialled import check_dials

Checker = Callable[[Sequence[Expression]], Sequence[str | None]]
"""The fault of each expression, or None."""

_SECTIONS = ("sources", "transforms", "sinks")


def compile_pipeline(
    text: str,
    file: str,
    check: Checker | None = None,
    *,
    bootstrap: str | None = None,
    environ: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Plan:
    """The plan a YAML text describes; raises SettingsError with all problems, those of `check` included.

    `bootstrap`: the brokers that it will use, if they differ from the file's. `environ`: the environment in which it
    will run; if given, the files and directories that a run needs are checked on this machine too. `variables`: the
    values of `${NAME}`; None if `${NAME}` is not replaced.
    """
    document = read_document(text, file, variables)
    findings = Findings(document)
    top = _top(findings, document)
    findings.patterns = _own_patterns(findings, top)
    sources, transforms, sinks = _parts(findings, document)
    graph = _graph(findings, document, sources, transforms, sinks)
    ordered = arrange(findings, graph.in_order())
    check_dials(findings, graph.transforms)
    graph.check_shapes()
    tests = _tests(findings, document, transforms, graph)
    if not findings.problems:
        graph.check_reach()
        graph.warn_unused()
    _check_outside(findings, graph, bootstrap, environ)
    if check is not None and findings.expressions:
        findings.problems += _faults(findings.expressions, check)
    if findings.problems or top is None:
        raise SettingsError(file, findings.problems)
    return _plan(top, file, findings, graph, ordered, tests)


def _top(findings: Findings, document: YamlDocument) -> PipelineModel | None:
    if not isinstance(document.data, dict):
        findings.problem((), "should be a group of keys and values: name, sources, transforms, sinks")
        return None
    top = findings.part(PipelineModel, (), document.data)
    if top is not None and not STREAM_NAME.fullmatch(top.name):
        findings.problem(
            ("name",), f"{top.name!r} should be letters, digits, '.', '_' and '-': streams are named after it"
        )
    for section in ("sources", "sinks"):
        if document.data.get(section) in (None, {}):
            findings.problem((section,), f"there are no {section}")
    return top


def _section(document: YamlDocument, name: str) -> dict[str, Any]:
    """A section of the document; empty if it is not a group, which the model of the document has reported."""
    section = document.data.get(name) if isinstance(document.data, dict) else None
    return section if isinstance(section, dict) else {}


def _own_patterns(findings: Findings, top: PipelineModel | None) -> dict[str, str]:
    own = top.patterns if top is not None else {}
    for name, pattern in own.items():
        try:
            if not name.isidentifier():
                raise PatternError("needs a name of letters, digits and '_'")
            check_re2(expand(pattern, own).expression)
        except PatternError as error:
            findings.problem(("patterns", name), f"pattern {error}")
    return own


def _parts(findings: Findings, document: YamlDocument) -> tuple[list[StreamSource], list[Transform], list[Sink]]:
    sources = [source_part(findings, name, value) for name, value in _section(document, "sources").items()]
    transforms = [transform_part(findings, name, value) for name, value in _section(document, "transforms").items()]
    sinks = [sink_part(findings, name, value) for name, value in _section(document, "sinks").items()]
    return (
        [node for node in sources if node is not None],
        [node for node in transforms if node is not None],
        [node for node in sinks if node is not None],
    )


def _graph(
    findings: Findings,
    document: YamlDocument,
    sources: list[StreamSource],
    transforms: list[Transform],
    sinks: list[Sink],
) -> Graph:
    names = {section: _section(document, section) for section in _SECTIONS}
    check_names(findings, names)
    whole = {node.name for node in (*sources, *transforms, *sinks)}
    broken = {name for section in names.values() for name in section} - whole
    graph = Graph(findings, sources, transforms, sinks, broken)
    graph.check_inputs_of_broken(names)
    return graph


def _tests(
    findings: Findings, document: YamlDocument, transforms: Sequence[Transform], graph: Graph
) -> tuple[PipelineTest, ...]:
    given = document.data.get("tests") if isinstance(document.data, dict) else None
    if not isinstance(given, list):
        return ()
    sources = list(_section(document, "sources"))
    places = [*_section(document, "transforms"), *_section(document, "sinks")]
    places += [edge for node in transforms for edge in node.outputs if edge != node.name]
    there = TestPlaces(sources, places, graph.drop_names(), graph.counted_alone(), graph.broken)
    tests = [test_part(findings, index, value, there) for index, value in enumerate(given)]
    kept = [test for test in tests if test is not None]
    names = [test.name for test in kept]
    for index, name in enumerate(names):
        if name in names[:index]:
            findings.problem(("tests", index), f"there is a test named {name!r} already")
    return tuple(kept)


def _check_outside(findings: Findings, graph: Graph, bootstrap: str | None, environ: Mapping[str, str] | None) -> None:
    """Checks what the pipeline uses outside itself: streams of the log, directories, keys. They are read directly from
    the document, so that faults of the document's own keys do not hide theirs."""
    name, log = _text(findings, "name") or "", bootstrap or _text(findings, "bootstrap") or ""
    if not _is_bootstrap(log):
        log = BOOTSTRAP_DEFAULT
    StreamCheck(findings, name, log, graph.sources, graph.transforms, graph.sinks).run()
    file = findings.document.name
    place = checkpoint_place(findings)
    directories = DirectoryCheck(findings, file, files_of(findings, name, place), graph.sinks, place.files_key)
    directories.check_overlaps()
    directories.check_stores(None if place.store is None or store_fault(place.store) else place.store)
    directories.check_files()
    if environ is not None:
        directories.check_writable()
        check_keys(findings, file, graph.transforms, environ)
        check_credentials(findings, file, graph.sinks, environ)
        check_tables(findings, file, graph.transforms)


def _text(findings: Findings, key: str) -> str | None:
    data = findings.document.data
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, str) else None


def _is_bootstrap(text: str) -> bool:
    try:
        split_bootstrap(text)
    except ValueError:
        return False
    return True


def _faults(found: Sequence[Expression], check: Checker) -> list[Problem]:
    answers = check(found)
    return [
        Problem(expression.where, expression.line, message, expression.file)
        for expression, message in zip(found, answers, strict=True)
        if message is not None
    ]


def _plan(
    top: PipelineModel,
    file: str,
    findings: Findings,
    graph: Graph,
    ordered: list[Transform],
    tests: tuple[PipelineTest, ...],
) -> Plan:
    place = checkpoint_place(findings)
    return Plan(
        name=top.name,
        file=file,
        bootstrap=top.bootstrap,
        checkpoint=place.path_of(top.name),
        checkpoint_store=msgspec.UNSET if place.store is None else place.store,
        work_dir=msgspec.UNSET if place.work_dir is None else place.work_dir,
        max_records_per_batch=top.batch.max_records,
        trigger_interval_ms=top.batch.interval,
        sources=tuple(graph.sources),
        transforms=tuple(ordered),
        sinks=tuple(graph.sinks),
        tests=tests,
        warnings=tuple(findings.warnings),
    )
