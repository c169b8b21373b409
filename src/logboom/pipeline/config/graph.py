"""The graph of a pipeline: names, inputs, cycles, whether an edge carries records or events, and edges without a
reader.

It knows nodes by their names, inputs and outputs. It must not know what a node does, with one exception: transforms
that read records come first, everything after them takes events.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, TypeVar

import msgspec

from logboom.base.settings import KeyPath
from logboom.pipeline.findings import Findings, Part, hint
from logboom.pipeline.plan.names import NODE_NAME
from logboom.pipeline.plan.nodes import KernelTransform, Node, Sink, StreamSource, Transform
from logboom.pipeline.plan.stateful import StatefulTransform
from logboom.pipeline.transforms.registry import transform_types, type_of

_RESERVED: Final = ("dead", "dropped")

Sections = Mapping[str, Iterable[str]]
Reader = TypeVar("Reader", Transform, Sink)


def check_names(findings: Findings, sections: Sections) -> None:
    """Names are unique in the whole file, since counts and edges are identified by name only."""
    seen: dict[str, str] = {}
    for section, names in sections.items():
        for name in names:
            path: KeyPath = (section, name)
            if name in _RESERVED:
                findings.problem(path, f"{name!r} is a reserved name")
            elif not NODE_NAME.fullmatch(name):
                findings.problem(
                    path, f"{name!r} is not a valid name (letters, digits, '_' and '-', starting with a letter)"
                )
            if name in seen:
                findings.problem(path, f"{name!r} is already used by one of the {seen[name]}")
            seen.setdefault(name, section)


class Graph:
    """The compiled nodes, and the names of nodes that could not be compiled, so that one fault is reported once."""

    def __init__(
        self,
        findings: Findings,
        sources: Sequence[StreamSource],
        transforms: Sequence[Transform],
        sinks: Sequence[Sink],
        broken: Iterable[str],
    ) -> None:
        self._findings = findings
        self.broken = frozenset(broken)
        """Names of nodes that could not be compiled."""
        self.sources = list(sources)
        self.transforms = [self._with_inputs(node, "transforms", transforms) for node in transforms]
        self.sinks = [self._with_inputs(node, "sinks", transforms) for node in sinks]

    def check_inputs_of_broken(self, document: Mapping[str, Mapping[str, object]]) -> None:
        """Reports the unknown inputs of nodes that could not be compiled, as the sections of the document have them."""
        for section in ("transforms", "sinks"):
            for name, part in document[section].items():
                if name in self.broken:
                    self._check_inputs(section, name, part)

    def _check_inputs(self, section: str, name: str, part: object) -> None:
        if not isinstance(part, dict):
            return
        kind = transform_types().get(str(part.get("type"))) if section == "transforms" else None
        edges = [edge for node in (*self.sources, *self.transforms) for edge in node.outputs]
        for key in ("inputs",) if kind is None else kind.input_keys:
            given = part.get(key)
            for one in given if isinstance(given, list) else [given]:
                if isinstance(one, str) and not self._is_known(one, edges):
                    message = self._unknown_input(one, edges, name, self.transforms)
                    self._findings.problem((section, name, key), message)

    def _is_known(self, given: str, edges: Iterable[str]) -> bool:
        """Whether an input names an output, or one of a node that could not be compiled."""
        return given.split(".")[0] in self.broken or any(fnmatchcase(edge, given) for edge in edges)

    def _with_inputs(self, node: Reader, section: str, transforms: Sequence[Transform]) -> Reader:
        """The node with its inputs as edges; inputs that name no edge are reported and left out."""
        path: KeyPath = (section, node.name, "inputs")
        edges = [edge for other in (*self.sources, *transforms) for edge in other.outputs]
        found: list[str] = []
        if not node.inputs:
            self._findings.problem((section, node.name), "has no inputs")
        for given in node.inputs:
            edge_names = [edge for edge in edges if fnmatchcase(edge, given) and edge not in node.outputs]
            if "*" in given and edge_names:
                found += edge_names
            elif given in edges:
                found.append(given)
            elif given.split(".")[0] not in self.broken:
                self._findings.problem(path, self._unknown_input(given, edges, node.name, transforms))
        for edge in sorted({edge for edge in found if found.count(edge) > 1}):
            self._findings.problem(path, f"names {edge!r} twice")
        return msgspec.structs.replace(node, inputs=tuple(dict.fromkeys(found)))

    def _unknown_input(self, given: str, edges: list[str], reader: str, transforms: Sequence[Transform]) -> str:
        for node in transforms:
            if node.name == given:  # no edge has the node's name, so its outputs have names of their own
                outputs = ", ".join(dict.fromkeys(node.outputs))
                return f"{given!r} is a {type_of(node).name}: name one of its outputs ({outputs})"
        others = [edge for edge in dict.fromkeys(edges) if edge.split(".")[0] != reader]
        return f"unknown input {given!r} ({hint(given, others)})"

    # --- order ---------------------------------------------------------------------------------------------------

    def in_order(self) -> list[Transform]:
        """Transforms in topological order; those on a cycle are reported and left out."""
        placed: list[Transform] = []
        ready = {edge for source in self.sources for edge in source.outputs}
        left = list(self.transforms)
        while True:
            step = [node for node in left if set(node.inputs) <= ready]
            if not step:
                break
            placed += step
            ready |= {edge for node in step for edge in node.outputs}
            left = [node for node in left if node not in step]
        self._report_cycles(left)
        return placed

    def _report_cycles(self, left: list[Transform]) -> None:
        by_edge = {edge: node for node in left for edge in node.outputs}
        reported: set[str] = set()
        for node in left:
            walk: list[Transform] = []
            here: Transform | None = node
            while here is not None and here not in walk:
                walk.append(here)
                here = next((by_edge[edge] for edge in here.inputs if edge in by_edge), None)
            if here is None:
                continue
            names = [each.name for each in reversed(walk[walk.index(here) :])]
            if not reported & set(names):
                first = names.index(min(names))
                circle = [*names[first:], *names[:first]]
                message = f"is its own input: {' -> '.join([*circle, circle[0]])}"
                self._findings.problem(("transforms", circle[0], "inputs"), message)
            reported |= set(names)

    # --- shapes --------------------------------------------------------------------------------------------------

    def check_shapes(self) -> None:
        """A parse reads raw records; everything else reads events."""
        raw = {edge: source.name for source in self.sources for edge in source.outputs}
        for section, nodes in (("transforms", self.transforms), ("sinks", self.sinks)):
            for node in nodes:
                for edge in node.inputs:
                    wants_records = isinstance(node, KernelTransform) and node.reads_records
                    if (edge in raw) == wants_records:
                        continue
                    path: KeyPath = (section, node.name, "inputs")
                    self._findings.problem(path, _shape_message(edge, wants_records))
        for node in self.transforms:
            check = type_of(node).check_inputs
            if check is not None:
                check(node, Part(self._findings, ("transforms", node.name)), self.broken)

    # --- use -----------------------------------------------------------------------------------------------------

    def warn_unused(self) -> None:
        """Warns of outputs without a reader: their records are dropped there and counted under the output's name."""
        for section, nodes in (("sources", self.sources), ("transforms", self.transforms)):
            for node in nodes:
                for edge in self._unread(node):
                    if edge not in node.optional_outputs:
                        what = "nothing reads it" if section == "sources" else "nothing reads this output; its events"
                        rest = "" if section == "sources" else f" are dropped and counted as dropped by {edge!r}"
                        self._findings.warning((section, node.name), f"{edge}: {what}{rest}")

    def _unread(self, node: Node) -> list[str]:
        """Its outputs without a reader."""
        read = {edge for reader in (*self.transforms, *self.sinks) for edge in reader.inputs}
        return [edge for edge in node.outputs if edge not in read]

    def drop_names(self) -> list[str]:
        """The names under which events are dropped: those of rules, and those of outputs without a reader."""
        rules = [rule for node in self.transforms for rule in node.drop_rules]
        return rules + [edge for node in (*self.sources, *self.transforms) for edge in self._unread(node)]

    def counted_alone(self) -> list[str]:
        """Names under which only a count of the dropped events is kept."""
        held = [node for node in self.transforms if isinstance(node, StatefulTransform) and node.drops_held]
        return [rule for node in held for rule in node.drop_rules]

    def check_reach(self) -> None:
        """Checks that a source reaches at least one sink."""
        producers: dict[str, Node] = {edge: node for node in (*self.sources, *self.transforms) for edge in node.outputs}
        open_edges = [edge for sink in self.sinks for edge in sink.inputs]
        seen: set[str] = set()
        while open_edges:
            edge = open_edges.pop()
            node = producers.get(edge)
            if edge in seen or node is None:
                continue
            seen.add(edge)
            if isinstance(node, StreamSource):
                return
            open_edges += getattr(node, "inputs", ())
        self._findings.problem(("sinks",), "no source reaches a sink")


def _shape_message(edge: str, is_parse: bool) -> str:
    if is_parse:
        return (
            f"reads {edge!r}, whose records are already events; a parse reads sources (use body_format to parse a body)"
        )
    return f"reads {edge!r}, whose records are not parsed; put a parse between them"


def arrange(findings: Findings, ordered: Sequence[Transform]) -> list[Transform]:
    """The transforms, given in order, after each has learned what it must know about the others."""
    arranged = list(ordered)
    for kind in transform_types().values():
        if kind.arrange is not None:
            arranged = kind.arrange(findings, arranged)
    return arranged
