"""The plan as numbered places and steps: where a record can be while a batch runs, and what takes it onward.

Every row of a batch carries one number, `at`. The graph of a plan becomes a list of steps, each of which routes rows
onward: kernel passes and layers. A layer folds as many filters, routes and fan-outs as it can into one, so that a row
is looked at, and copied, as few times as possible.

It knows plans and writes SQL text. It must not know Spark, Arrow, streams' names or how a step is run.
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
"""Places from here on leave the pipeline through the log; below 0 a record was dropped; the rest is on its way."""

Kind = Literal["arc", "fan", "dropped", "dead", "direct", "edge"]


@dataclass(frozen=True, slots=True)
class Place:
    """One number that `at` can have.

    arc: waits for the transform `node`, having come by `edge`. fan: left by `edge`, to be copied to all readers of it.
    direct: for the stream of the sink `node`. edge: for the stream of `edge`, from which other sinks are delivered.
    dropped: by the rule `node`. dead: at the stage `node`, for the reason `why` unless the record has one of its own.
    """

    code: int
    kind: Kind
    edge: str
    node: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to be evaluated for rows at the places `at`; its value goes to the column `column`."""

    column: str
    sql: str
    at: tuple[int, ...]
    sample: Sampling | None = None
    """The sample whose decision it is."""


@dataclass(frozen=True, slots=True)
class Weight:
    """The new weight, in SQL, of rows at the place `at` that the condition of `column` keeps."""

    at: int
    column: str
    sql: str
    sample: Sampling


@dataclass(frozen=True, slots=True)
class Layer:
    """One step: evaluate the conditions, adjust the weights, then route each row, copied where it has several
    destinations."""

    routing: tuple[tuple[int, Outcome], ...]
    """By the place of a row: where it goes."""
    conditions: tuple[Condition, ...]
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True)
class KernelNode:
    """A transform that runs on Arrow batches: which places it takes from, where its events and its dead go."""

    transform: KernelTransform
    arrivals: tuple[int, ...]
    leaves: int
    dead: int
    dropped: tuple[int, ...] = ()
    """Where rows go that the kernel drops, by the rule that drops them."""


@dataclass(frozen=True, slots=True)
class KernelPass:
    """Kernels run one after the other on each Arrow batch."""

    nodes: tuple[KernelNode, ...]

    @property
    def reads_records(self) -> bool:
        """Whether it turns raw records into events."""
        return any(node.transform.reads_records for node in self.nodes)

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """The columns, and the SQL over events that Spark fills each with, of its first transform."""
        return self.nodes[0].transform.event_values

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels under which its transforms count what they replaced, each once."""
        return tuple(dict.fromkeys(label for node in self.nodes for label in node.transform.mask_labels))

    @property
    def failures(self) -> tuple[str, ...]:
        """Names under which its transforms count expressions that failed."""
        return tuple(dict.fromkeys(label for node in self.nodes for label in node.transform.failure_labels))

    @property
    def misses(self) -> tuple[str, ...]:
        """Names under which its transforms count what their tables do not have."""
        return tuple(dict.fromkeys(label for node in self.nodes for label in node.transform.miss_labels))


@dataclass(frozen=True, slots=True)
class StatefulNode:
    """A transform with a state: which places it takes from, and where its events go."""

    transform: StatefulTransform
    arrivals: tuple[tuple[int, int], ...]
    """Places, and by which of the transform's inputs an event came there."""
    exits: tuple[tuple[int, int], ...]
    """The place behind each exit but TAKEN (see `stateful.EXIT`)."""

    @property
    def places(self) -> tuple[int, ...]:
        """Where its events wait."""
        return tuple(code for code, _ in self.arrivals)


@dataclass(frozen=True, slots=True)
class StatefulStep:
    """Transforms with a state, none of which reads what another one of them gives. Each is in one step of a layout."""

    nodes: tuple[StatefulNode, ...]


Step = Layer | KernelPass | StatefulStep


@dataclass(slots=True)
class _Places:
    """Assigns numbers to places, the same ones for the same plan."""

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
    """The places of a plan and the steps that move records through them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._places = _Places()
        self.entries = {source.name: self.leave(source.name) for source in plan.sources}
        """Where the records of each source start."""
        self.steps: tuple[Step, ...] = tuple(self._build())
        self.oversize = {place.code: self.dead_code(self._sink_of(place)) for place in self.finals() if place.edge}
        """For each place that leads to a sink: where records go that are too large to be written."""

    @property
    def places(self) -> tuple[Place, ...]:
        """Every place that a record of this plan can be at."""
        return tuple(self._places.found.values())

    def finals(self) -> tuple[Place, ...]:
        """The places that leave through the log."""
        return tuple(place for place in self.places if place.code >= FINAL_FROM)

    def stateful(self) -> tuple[StatefulTransform, ...]:
        """The transforms with a state, inputs first."""
        return tuple(node for node in self.plan.transforms if isinstance(node, StatefulTransform))

    def failure_rules(self) -> tuple[str, ...]:
        """The names of all expressions whose failures are counted, each once."""
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
        """Where a record that leaves by an edge goes: every reader of the edge, or dropped under the edge's name."""
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
        """One place for a record that leaves by an edge: where it goes, or the fan that will copy it."""
        arrivals = self.arrivals(edge)
        return arrivals[0] if len(arrivals) == 1 else self._places.code("fan", edge, "")

    def _sink_of(self, place: Place) -> str:
        """The sink whose dead letters get a record at a final place; the first where several share it."""
        if place.kind == "direct":
            return place.node
        return next(sink.name for sink in self.plan.sinks if place.edge in sink.inputs and not is_direct(sink))

    def _build(self) -> Iterable[Step]:
        """Steps until no row is on its way. `present`: the places where a row can be between two steps.

        Routing goes first wherever a row waits for it: the next kernel pass then takes all rows that need one. What has
        a state goes last, so that each such transform sees all its rows of a batch at once.
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
        """The kind of step that takes a row onward from a place."""
        place = self.place(code)
        transform = self.transform(place.node) if place.kind == "arc" else None
        if isinstance(transform, StatefulTransform):
            return StatefulStep
        return KernelPass if isinstance(transform, KernelTransform) else Layer

    def _stateful_step(self, present: set[int]) -> StatefulStep:
        """The waiting transforms that no other waiting one leads to."""
        behind: set[str] = set()
        nodes: list[StatefulNode] = []
        for node in self.plan.transforms:  # inputs come first
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
        """The places where events wait for a transform, and by which of its inputs they came."""
        return {self._places.code("arc", edge, transform.name): at for at, edge in enumerate(transform.inputs)}

    def place(self, code: int) -> Place:
        """The place of this number."""
        return next(place for place in self._places.found.values() if place.code == code)

    def transform(self, name: str) -> Transform:
        """The transform of this name."""
        return next(transform for transform in self.plan.transforms if transform.name == name)

    def _kernel_pass(self, present: set[int]) -> KernelPass:
        here = set(present)
        nodes: list[KernelNode] = []
        for transform in self.plan.transforms:
            if not isinstance(transform, KernelTransform):
                continue
            arcs = {self._places.code("arc", edge, transform.name) for edge in transform.inputs}
            if transform.event_values and nodes:
                continue  # its values are computed in front of a pass, from events that have come so far
            if taken := tuple(sorted(arcs & here)):
                leaves = self.leave(transform.name)
                dropped = tuple(map(self.dropped_code, transform.drop_rules))
                nodes.append(KernelNode(transform, taken, leaves, self.dead_code(transform.name), dropped))
                here = (here - arcs) | {leaves}
        return KernelPass(tuple(nodes))

    @staticmethod
    def _after(step: Step, present: set[int]) -> set[int]:
        """The places where a row can be behind the step."""
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
        """What becomes of a record at `code`, following routing transforms and fans as far as they go."""
        place = self.layout.place(code)
        if place.kind == "fan":
            return self.edge(place.edge, head)
        if place.kind != "arc":
            return Emit((code,))
        transform = self.layout.transform(place.node)
        # One that opens a layer is only ever its head: folded in further behind, it would see values of columns from
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
    """The `LayerScope` of one transform that rows of one head reach."""

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
    """Whether the router writes a sink itself: a stream on the same log."""
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
