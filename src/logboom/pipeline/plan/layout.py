"""The plan as numbered places and steps: where a record can be during a batch, and which step moves it.

Every row of a batch has a number, its place, in the column `at`. The graph of a plan becomes a list of steps, each of
which moves rows to other places: kernel passes and layers. A layer combines as many filters, routes and fan-outs as
possible, so that a row is read and copied as few times as possible.

Knows plans and creates SQL text. Must not know Spark, Arrow, streams' names or how a step is run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from logboom.pipeline.plan.nodes import Consumer, KernelTransform, Plan, RoutingTransform, Sink, Transform
from logboom.pipeline.plan.outcomes import (
    Branches,
    Choice,
    Counted,
    Emit,
    Outcome,
    Union,
    failure_text,
    rules_counted,
)
from logboom.pipeline.plan.sampling import Sampling, keep_condition, weight_expression
from logboom.pipeline.plan.stateful import StatefulTransform, dropped_by

FINAL_FROM: Final = 10_000
"""Rows at this place or above are written to the log, rows below 0 were dropped, and all others need further steps."""

Kind = Literal["arc", "fan", "dropped", "dead", "direct", "edge"]


@dataclass(frozen=True, slots=True)
class Place:
    """One place.

    arc: waits for the transform `node`, on its input `edge`. fan: left by `edge`, to be copied to all readers of it.
    direct: for the stream of the sink `node`. edge: for the stream of `edge`, from which other sinks are delivered.
    dropped: by the rule `node`. dead: at the stage `node`, for the reason `why` unless the record has its own reason.
    """

    code: int
    kind: Kind
    edge: str
    node: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that is evaluated for rows at the places `at`; its value is put in the column `column`."""

    column: str
    sql: str
    at: tuple[int, ...]
    sample: Sampling | None = None
    """The sample that it decides, if any."""


@dataclass(frozen=True, slots=True)
class Weight:
    """The new weight, in SQL, of rows at the place `at` for which the condition in `column` is true."""

    at: int
    column: str
    sql: str
    sample: Sampling


@dataclass(frozen=True, slots=True)
class Layer:
    """One step: evaluate the conditions, change the weights, then move each row, with copies if it has several
    destinations."""

    routing: tuple[tuple[int, Outcome], ...]
    """The outcome by place of a row."""
    conditions: tuple[Condition, ...]
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True)
class KernelNode:
    """A transform that runs on Arrow batches: the places of its input, its events and its dead letters."""

    transform: KernelTransform
    arrivals: tuple[int, ...]
    leaves: int
    dead: int
    dropped: tuple[int, ...] = ()
    """The places of dropped rows, by rule."""


@dataclass(frozen=True, slots=True)
class KernelPass:
    """Kernels that run one after the other on each Arrow batch."""

    nodes: tuple[KernelNode, ...]

    @property
    def reads_records(self) -> bool:
        """Whether it turns raw records into events."""
        return any(node.transform.reads_records for node in self.nodes)

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """The columns that its first transform needs, with the SQL over events for their values."""
        return self.nodes[0].transform.event_values

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels by which its transforms count replacements, without duplicates."""
        return tuple(dict.fromkeys(label for node in self.nodes for label in node.transform.mask_labels))

    @property
    def failures(self) -> tuple[str, ...]:
        """Names by which its transforms count failed expressions."""
        return tuple(dict.fromkeys(label for node in self.nodes for label in node.transform.failure_labels))

    @property
    def misses(self) -> tuple[str, ...]:
        """Names by which its transforms count missing keys of tables."""
        return tuple(dict.fromkeys(label for node in self.nodes for label in node.transform.miss_labels))


@dataclass(frozen=True, slots=True)
class StatefulNode:
    """A transform with state: the places of its input and of its events."""

    transform: StatefulTransform
    arrivals: tuple[tuple[int, int], ...]
    """Its input places, with the position of the transform's input."""
    exits: tuple[tuple[int, int], ...]
    """The place for each exit except TAKEN (see `stateful.EXIT`)."""

    @property
    def places(self) -> tuple[int, ...]:
        """The place where its events wait."""
        return tuple(code for code, _ in self.arrivals)


@dataclass(frozen=True, slots=True)
class StatefulStep:
    """Transforms with state, none of which reads from another one. Each is in one step of a layout."""

    nodes: tuple[StatefulNode, ...]


Step = Layer | KernelPass | StatefulStep


@dataclass(slots=True)
class _Places:
    """Numbers the places; the same plan always gets the same numbers."""

    found: dict[tuple[Kind, str, str, str], Place] = field(default_factory=dict)

    def code(self, kind: Kind, edge: str, node: str, why: str = "") -> int:
        key = (kind, edge, node, why)
        if key not in self.found:
            self.found[key] = Place(self._next(kind), kind, edge, node, why)
        return self.found[key].code

    def _next(self, kind: Kind) -> int:
        if kind == "dropped":
            return -1 - sum(place.code < 0 for place in self.found.values())
        if kind in ("dead", "direct", "edge"):
            return FINAL_FROM + sum(place.code >= FINAL_FROM for place in self.found.values())
        return sum(0 <= place.code < FINAL_FROM for place in self.found.values())


class Layout:
    """The places of a plan and the steps that move records between them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._places = _Places()
        self.entries = {source.name: self.leave(source.name) for source in plan.sources}
        """The first place of each source's records."""
        self.steps: tuple[Step, ...] = tuple(self._build())
        self.oversize = {place.code: self.dead_code(self._sink_of(place)) for place in self.finals() if place.edge}
        """For each place that leads to a sink: the place for records that are too large to be written."""

    @property
    def places(self) -> tuple[Place, ...]:
        """Every place of this plan."""
        return tuple(self._places.found.values())

    def finals(self) -> tuple[Place, ...]:
        """The places whose records are written to the log."""
        return tuple(place for place in self.places if place.code >= FINAL_FROM)

    def stateful(self) -> tuple[StatefulTransform, ...]:
        """The transforms with state, inputs first."""
        return tuple(node for node in self.plan.transforms if isinstance(node, StatefulTransform))

    def failure_rules(self) -> tuple[str, ...]:
        """The names of all expressions whose failures are counted, without duplicates."""
        layers = (step for step in self.steps if isinstance(step, Layer))
        counted = (rule for layer in layers for _, outcome in layer.routing for rule in rules_counted(outcome))
        return tuple(dict.fromkeys((*self.plan.failure_labels(), *counted)))

    def dead_code(self, stage: str, why: str = "") -> int:
        """The place of records that die at this stage for this reason."""
        return self._places.code("dead", "", stage, why)

    def dropped_code(self, rule: str) -> int:
        """The place of records that this rule dropped."""
        return self._places.code("dropped", "", rule)

    def arrivals(self, edge: str) -> tuple[int, ...]:
        """The destinations of records that leave by an edge: every reader of the edge, or dropped under the edge's
        name."""
        codes: dict[int, None] = {}
        for consumer in self.plan.consumers(edge):
            if is_direct(consumer):
                codes[self._places.code("direct", edge, consumer.name)] = None
            elif isinstance(consumer, Transform):
                codes[self._places.code("arc", edge, consumer.name)] = None
            else:
                codes[self._places.code("edge", edge, "")] = None
        return tuple(codes) or (self.dropped_code(edge),)

    def leave(self, edge: str) -> int:
        """The place for records that leave by an edge: their destination, or a fan that will copy them."""
        arrivals = self.arrivals(edge)
        return arrivals[0] if len(arrivals) == 1 else self._places.code("fan", edge, "")

    def _sink_of(self, place: Place) -> str:
        """The sink whose dead letters get a record at a final place; the first one if several share the place."""
        if place.kind == "direct":
            return place.node
        return next(sink.name for sink in self.plan.sinks if place.edge in sink.inputs and not is_direct(sink))

    def _build(self) -> Iterable[Step]:
        """The steps until all rows are at final places. `present`: the places that rows can have between two steps.

        Routing steps come first, so that the next kernel pass gets all rows that need one. Transforms with state come
        last, so that each gets all its rows of a batch at once.
        """
        present = set(self.entries.values())
        while moving := sorted(code for code in present if 0 <= code < FINAL_FROM):
            waiting = [self._waits_for(code) for code in moving]
            in_sql = [code for code, kind in zip(moving, waiting, strict=True) if kind is Layer]
            step: Step
            if in_sql:
                step = self._layer(in_sql)
            else:
                step = self._kernel_pass(present) if KernelPass in waiting else self._stateful_step(present)
            present = self._after(step, present)
            yield step

    def _waits_for(self, code: int) -> type[Step]:
        """The kind of step that moves a row from a place."""
        place = self.place(code)
        transform = self.transform(place.node) if place.kind == "arc" else None
        if isinstance(transform, StatefulTransform):
            return StatefulStep
        return KernelPass if isinstance(transform, KernelTransform) else Layer

    def _stateful_step(self, present: set[int]) -> StatefulStep:
        """The waiting transforms that do not depend on another waiting one."""
        behind: set[str] = set()
        nodes: list[StatefulNode] = []
        for node in self.plan.transforms:  # inputs first
            if set(node.inputs) & behind:
                behind.update(node.outputs)
            elif isinstance(node, StatefulTransform) and self._arcs(node).keys() & present:
                behind.update(node.outputs)
                arrivals = tuple((code, at) for code, at in self._arcs(node).items() if code in present)
                exits = [(at, self.leave(edge)) for at, edge in enumerate(node.outputs)]
                exits += [(dropped_by(at), self.dropped_code(rule)) for at, rule in enumerate(node.drop_rules)]
                nodes.append(StatefulNode(node, arrivals, tuple(exits)))
        return StatefulStep(tuple(nodes))

    def _arcs(self, transform: Transform) -> dict[int, int]:
        """The places where events wait for a transform, with the positions of its inputs."""
        return {self._places.code("arc", edge, transform.name): at for at, edge in enumerate(transform.inputs)}

    def place(self, code: int) -> Place:
        """The place with this number."""
        return next(place for place in self._places.found.values() if place.code == code)

    def transform(self, name: str) -> Transform:
        """The transform with this name."""
        return next(transform for transform in self.plan.transforms if transform.name == name)

    def _kernel_pass(self, present: set[int]) -> KernelPass:
        here = set(present)
        nodes: list[KernelNode] = []
        for transform in self.plan.transforms:
            if not isinstance(transform, KernelTransform):
                continue
            arcs = {self._places.code("arc", edge, transform.name) for edge in transform.inputs}
            if transform.event_values and nodes:
                continue  # its values are computed before a pass, from the events that have arrived so far
            if taken := tuple(sorted(arcs & here)):
                leaves = self.leave(transform.name)
                dropped = tuple(map(self.dropped_code, transform.drop_rules))
                nodes.append(KernelNode(transform, taken, leaves, self.dead_code(transform.name), dropped))
                here = (here - arcs) | {leaves}
        return KernelPass(tuple(nodes))

    @staticmethod
    def _after(step: Step, present: set[int]) -> set[int]:
        """The places that rows can have after the step."""
        if isinstance(step, KernelPass):
            for node in step.nodes:
                present = (present - set(node.arrivals)) | {node.leaves, node.dead}
            return present
        if isinstance(step, StatefulStep):
            for stateful in step.nodes:
                present = (present - set(stateful.places)) | {place for _, place in stateful.exits}
            return present
        routed = {code for code, _ in step.routing}
        return (present - routed) | {code for _, outcome in step.routing for code in _codes(outcome)}

    def _layer(self, heads: list[int]) -> Layer:
        return _LayerBuilder(self, heads).build()


class _LayerBuilder:
    """Collects the conditions that the routing of one layer needs."""

    def __init__(self, layout: Layout, heads: list[int]) -> None:
        self.layout = layout
        self._heads = heads
        self._conditions: dict[str, tuple[str, list[int]]] = {}
        self._samples: dict[str, Sampling] = {}
        self._weights: list[Weight] = []

    def build(self) -> Layer:
        routing = tuple((head, self._onward(head, head)) for head in self._heads)
        conditions = tuple(
            Condition(column, sql, tuple(at), self._samples.get(sql)) for sql, (column, at) in self._conditions.items()
        )
        return Layer(routing, conditions, tuple(self._weights))

    def _onward(self, code: int, head: int) -> Outcome:
        """The outcome of a record at `code`, through routing transforms and fans as far as possible."""
        place = self.layout.place(code)
        if place.kind == "fan":
            return self.edge(place.edge, head)
        if place.kind != "arc":
            return Emit((code,))
        transform = self.layout.transform(place.node)
        # A transform that starts a layer can only be its first: combined after others, it would see the columns from
        # before the layer.
        if isinstance(transform, RoutingTransform) and (code == head or not transform.opens_layer):
            return transform.outcome(_Scope(self, transform.name, head))
        return Emit((code,))

    def edge(self, edge: str, head: int) -> Outcome:
        parts = tuple(self._onward(code, head) for code in self.layout.arrivals(edge))
        return parts[0] if len(parts) == 1 else Union(parts)

    def condition(self, sql: str, head: int) -> str:
        column, at = self._conditions.setdefault(sql, (f"is_{len(self._conditions)}", []))
        if head not in at:
            at.append(head)
        return column

    def sample(self, sampling: Sampling, head: int) -> str:
        sql = keep_condition(sampling)
        self._samples[sql] = sampling
        column = self.condition(sql, head)
        self._weights.append(Weight(head, column, weight_expression(sampling), sampling))
        return column


@dataclass(frozen=True, slots=True)
class _Scope:
    """The `LayerScope` of a transform for the rows of one layer that reach it."""

    builder: _LayerBuilder
    transform: str
    head: int

    def condition(self, sql: str) -> str:
        return self.builder.condition(sql, self.head)

    def sample(self, sampling: Sampling) -> str:
        return self.builder.sample(sampling, self.head)

    def follow(self, edge: str) -> Outcome:
        return self.builder.edge(edge, self.head)

    def leave(self, edge: str) -> Outcome:
        return Emit((self.builder.layout.leave(edge),))

    def dropped(self) -> Outcome:
        return Emit((self.builder.layout.dropped_code(self.transform),))

    def dead(self, why: str) -> Outcome:
        return Emit((self.builder.layout.dead_code(self.transform, why),))

    def failed(self, rule: str, sql: str) -> Outcome:
        return Counted(rule, self.dead(failure_text(rule, sql)))


def is_direct(node: Consumer) -> bool:
    """Whether the router itself writes a sink: a stream on the same log."""
    return isinstance(node, Sink) and node.log_output is not None


def _codes(outcome: Outcome) -> set[int]:
    match outcome:
        case Emit(codes):
            return set(codes)
        case Counted(_, then):
            return _codes(then)
        case Choice(_, then, otherwise, failed):
            return _codes(then) | _codes(otherwise) | _codes(failed)
        case Branches(branches, unmatched, failed):
            return set().union(*(_codes(part) for _, part in branches), _codes(unmatched), *map(_codes, failed))
        case Union(parts):
            return set().union(*(_codes(part) for part in parts))
