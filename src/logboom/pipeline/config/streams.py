"""Checks the streams that a pipeline reads and writes: none is read twice, none feeds itself, none is one of the
router's own.

Knows nodes, their edges and the names of the streams the router makes. Must not know directories or the log itself: a
stream that exists only at run time and matches a pattern is not checked here.

In a loop the output of a pipeline is its own input: every event comes back as a new record, so a thousand records
become millions within minutes. A chain (one source's events go to a stream that another source reads) is
no loop and is allowed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from logboom.base.settings import KeyPath, split_bootstrap
from logboom.pipeline.findings import Findings
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import Consumer, Expression, Node, Sink, StreamSource, Transform

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_INTERNAL: Final = "an internal stream of this pipeline"
_PLAIN_PATTERN: Final = re.compile(r"(?:[A-Za-z0-9_.-]|[A-Za-z0-9_.)][*+?]|[()|])+")
"""Patterns with the same meaning in Java and Python."""


def check_pattern(findings: Findings, path: KeyPath, pattern: str) -> bool:
    """Whether a source's pattern is a regular expression. Patterns that Java might read differently are also checked in
    Java, because Spark matches names with it."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        findings.problem(path, f"{pattern!r} is not a valid regular expression: {error}")
        return False
    if _PLAIN_PATTERN.fullmatch(pattern) is None:
        line, place = findings.line(path), findings.document.problem(path, "")
        findings.expressions.append(
            Expression(sql=pattern, columns=(), line=line, where=place.where, wants="pattern", file=place.file)
        )
    return True


def same_log(one: str, other: str) -> bool:
    """Whether two lists of brokers name the same log: they share a broker.

    >>> same_log("localhost:9092", "10.0.0.7:9092,127.0.0.1:9092"), same_log("a:9092", "b:9092")
    (True, False)
    """
    return bool(_brokers(one) & _brokers(other))


def _brokers(bootstrap: str) -> set[tuple[str, int]]:
    return {("localhost" if host in _LOOPBACK else host, port) for host, port in split_bootstrap(bootstrap)}


@dataclass(frozen=True, slots=True)
class _Output:
    """A stream on the pipeline's own log that a node writes."""

    stream: str
    node: Node
    is_dead: bool
    """Whether dead letters go there."""


class StreamCheck:
    """The streams of one pipeline; `bootstrap` is the log that its sources are on."""

    def __init__(
        self,
        findings: Findings,
        pipeline: str,
        bootstrap: str,
        sources: Sequence[StreamSource],
        transforms: Sequence[Transform],
        sinks: Sequence[Sink],
    ) -> None:
        self._findings = findings
        self._pipeline = pipeline
        self._bootstrap = bootstrap
        self._sources = sources
        self._transforms = transforms
        self._sinks = sinks
        self._internal = {
            names.edge_stream(pipeline, edge) for node in (*sources, *transforms) for edge in node.outputs
        } | {names.DIALS_STREAM}
        own = {*self._internal, names.tick_stream(pipeline)}
        self._unwritten = dict.fromkeys(own, _INTERNAL) | {
            names.dead_stream(pipeline, node.name): f"the stream of dead letters of {node.name!r}"
            for node in (*transforms, *sinks)
        }
        """What no sink may write, with what it is."""

    def run(self) -> None:
        """Reports everything that is wrong."""
        self._check_sources()
        self._check_internal()
        self._check_loops()

    # --- one stream, one source --------------------------------------------------------------------------------------

    def _check_sources(self) -> None:
        for number, source in enumerate(self._sources):
            for earlier in self._sources[:number]:
                shared = _shared(source, earlier)
                if shared is not None:
                    self._findings.problem(
                        ("sources", source.name),
                        f"reads {shared}, which the source {earlier.name!r} (line {earlier.line}) reads too, so "
                        f"each record would be read twice; let both readers name {earlier.name!r} among their inputs",
                    )

    # --- the router's own streams -----------------------------------------------------------------------------------

    def _check_internal(self) -> None:
        for source in self._sources:
            for stream in sorted(stream for stream in self._internal if _reads(source, stream)):
                what = f"reads {stream!r}" if source.pattern is None else f"pattern matches {stream!r} too"
                self._findings.problem(("sources", source.name), f"{what}, {_INTERNAL}; leave it out")
        for sink in self._sinks:
            written = self._written(sink)
            kind = None if written is None else self._unwritten.get(written)
            if kind is not None:
                self._findings.problem(("sinks", sink.name, "stream"), f"{written!r} is {kind}; choose another name")

    # --- loops ------------------------------------------------------------------------------------------------------

    def _check_loops(self) -> None:
        outputs = {source.name: self._outputs(source) for source in self._sources}
        onward = {
            name: [reader.name for reader in self._sources if any(_reads(reader, output.stream) for output in found)]
            for name, found in outputs.items()
        }
        reported: set[str] = set()
        for source in self._sources:
            for output in outputs[source.name]:
                for reader in self._sources:
                    back = _path(onward, reader.name, source.name) if _reads(reader, output.stream) else None
                    if back is not None and output.node.name not in reported:
                        reported.add(output.node.name)
                        self._report_loop(output, reader, back)

    def _report_loop(self, output: _Output, reader: StreamSource, back: list[str]) -> None:
        if output.is_dead:
            self._findings.problem(
                ("sources", reader.name),
                f"reads {output.stream!r}, the dead letters of {output.node.name!r}, which come from this source: "
                "they would circulate for ever; 'logboom pipeline dead-letters retry' processes them once more",
            )
            return
        around = "" if len(back) == 1 else f" (through the sources {' -> '.join(back)})"
        self._findings.problem(
            ("sinks", output.node.name, "stream"),
            f"writes {output.stream!r}, which feeds the source {reader.name!r} (line {reader.line}) and so this sink "
            f"again{around}: each event would circulate as a new record for ever; write to another stream",
        )

    def _outputs(self, source: StreamSource) -> list[_Output]:
        """Every stream on the same log to which a record of the source may be written."""
        found = []
        for node in self._reached(source):
            stream = self._written(node) if isinstance(node, Sink) else None
            if stream is not None:
                found.append(_Output(stream, node, is_dead=False))
            found.append(_Output(names.dead_stream(self._pipeline, node.name), node, is_dead=True))
        return found

    def _reached(self, source: StreamSource) -> Iterator[Consumer]:
        edges = list(source.outputs)
        seen: set[str] = set()
        while edges:
            edge = edges.pop()
            for node in (*self._transforms, *self._sinks):
                if edge in node.inputs and node.name not in seen:
                    seen.add(node.name)
                    yield node
                    edges += [] if isinstance(node, Sink) else node.outputs

    def _written(self, sink: Sink) -> str | None:
        """The stream on the pipeline's own log that a sink writes; None for other sinks."""
        if sink.output_stream is None:
            return None
        stream, bootstrap = sink.output_stream
        return stream if bootstrap is None or same_log(bootstrap, self._bootstrap) else None


def _path(onward: dict[str, list[str]], start: str, goal: str) -> list[str] | None:
    """The sources through which records of `start` reach `goal`, both included; None if they do not."""
    paths = [[start]]
    seen = {start}
    while paths:
        path = paths.pop(0)
        if path[-1] == goal:
            return path
        for name in onward[path[-1]]:
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return None


def _reads(source: StreamSource, stream: str) -> bool:
    if source.pattern is None:
        return stream in source.streams
    return re.fullmatch(source.pattern, stream) is not None


def _shared(source: StreamSource, other: StreamSource) -> str | None:
    """The streams that both read, as part of a sentence. Two patterns are known to overlap only if they are equal."""
    if source.pattern is not None and source.pattern == other.pattern:
        return "the same pattern"
    named = source if source.pattern is None else other
    shared = next((stream for stream in named.streams if _reads(source, stream) and _reads(other, stream)), None)
    return None if shared is None else f"the stream {shared!r}"
