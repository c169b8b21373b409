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

from logboom.pipeline.plan.nodes import (
    FilterTransform,
    MaskTransform,
    ParseTransform,
    Plan,
    RouteTransform,
    SampleTransform,
    Sink,
    Transform,
)
from logboom.pipeline.plan.sampling import keep_condition, weight_expression

FINAL_FROM: Final = 10_000
"""Places from here on leave the pipeline through the log; below 0 a record was dropped; the rest is on its way."""

TRUE, FALSE, FAILED = 1, 0, 2
"""What a condition's column holds; FAILED where evaluating it raised an error on this record."""

Kind = Literal["arc", "fan", "dropped", "dead", "direct", "edge"]


@dataclass(frozen=True, slots=True)
class Place:
    """One number that `at` can have.

    arc: waits for the transform `node`, having come by `edge`. fan: left by `edge`, to be copied to all who read it.
    direct: for the stream of the sink `node`. edge: for the stream of `edge`, from which other sinks are delivered.
    dropped: by the rule `node`. dead: at the stage `node`.
    """

    code: int
    kind: Kind
    edge: str
    node: str


@dataclass(frozen=True, slots=True)
class Emit:
    """Goes on to all of these places."""

    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Goes on by the value of a condition."""

    column: str
    then: Outcome
    otherwise: Outcome
    failed: Outcome


@dataclass(frozen=True, slots=True)
class Branches:
    """Goes on by every condition that is true, by `unmatched` where none is; a failed one adds `failed`, once."""

    branches: tuple[tuple[str, Outcome], ...]
    unmatched: Outcome
    failed: Outcome


@dataclass(frozen=True, slots=True)
class Union:
    """Goes on by all of these."""

    parts: tuple[Outcome, ...]


Outcome = Emit | Choice | Branches | Union


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to be evaluated for rows at the places `at`; its value goes to the column `column`."""

    column: str
    sql: str
    at: tuple[int, ...]
    sample: SampleTransform | None = None
    """The sample whose decision it is."""


@dataclass(frozen=True, slots=True)
class Weight:
    """The new weight of rows at the place `at` that the condition of `column` keeps; `sql` says it for Spark."""

    at: int
    column: str
    sql: str
    sample: SampleTransform


@dataclass(frozen=True, slots=True)
class Layer:
    """One step: evaluate the conditions, adjust the weights, then route each row, copied where it has several
    destinations."""

    routing: tuple[tuple[int, Outcome], ...]
    """By the place a row stands at: where it goes."""
    conditions: tuple[Condition, ...]
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True)
class KernelNode:
    """A transform that runs on Arrow batches: which places it takes from, where its events and its dead go."""

    transform: ParseTransform | MaskTransform
    arrivals: tuple[int, ...]
    leaves: int
    dead: int
    dropped: int | None = None
    """For a parse that drops blank lines."""


@dataclass(frozen=True, slots=True)
class KernelPass:
    """Kernels run one after the other on each Arrow batch."""

    nodes: tuple[KernelNode, ...]

    @property
    def parses(self) -> bool:
        """Whether it turns raw records into events."""
        return any(isinstance(node.transform, ParseTransform) for node in self.nodes)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels its masks count under."""
        masks = (node.transform for node in self.nodes if isinstance(node.transform, MaskTransform))
        return tuple(dict.fromkeys(label for mask in masks for label in mask.labels))


Step = Layer | KernelPass


@dataclass(slots=True)
class _Places:
    """Hands out numbers, the same ones for the same plan."""

    found: dict[tuple[Kind, str, str], Place] = field(default_factory=dict)

    def code(self, kind: Kind, edge: str, node: str) -> int:
        key = (kind, edge, node)
        if key not in self.found:
            self.found[key] = Place(self._next(kind), kind, edge, node)
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
        """Every place a record of this plan can stand at."""
        return tuple(self._places.found.values())

    def finals(self) -> tuple[Place, ...]:
        """The places that leave through the log."""
        return tuple(place for place in self.places if place.code >= FINAL_FROM)

    def dead_code(self, stage: str) -> int:
        """The place of records that die at this stage."""
        return self._places.code("dead", "", stage)

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
        """The sink whose dead letters tell of a record at a final place; the first where several share it."""
        if place.kind == "direct":
            return place.node
        return next(sink.name for sink in self.plan.sinks if place.edge in sink.inputs and not is_direct(sink))

    def _build(self) -> Iterable[Step]:
        present = set(self.entries.values())
        while moving := sorted(code for code in present if 0 <= code < FINAL_FROM):
            in_sql = [code for code in moving if not self._is_kernel_arc(code)]
            step: Step = self._layer(in_sql) if in_sql else self._kernel_pass(present)
            present = self._after(step, present)
            yield step

    def _is_kernel_arc(self, code: int) -> bool:
        place = self.place(code)
        return place.kind == "arc" and isinstance(self.transform(place.node), ParseTransform | MaskTransform)

    def place(self, code: int) -> Place:
        """The place of this number."""
        return next(place for place in self._places.found.values() if place.code == code)

    def transform(self, name: str) -> Transform:
        """The transform of this name."""
        return next(transform for transform in self.plan.transforms if transform.name == name)

    def _kernel_pass(self, present: set[int]) -> KernelPass:
        here, nodes = set(present), []
        for transform in self.plan.transforms:
            if not isinstance(transform, ParseTransform | MaskTransform):
                continue
            arcs = {self._places.code("arc", edge, transform.name) for edge in transform.inputs}
            if taken := tuple(sorted(arcs & here)):
                leaves = self.leave(transform.name)
                drops = isinstance(transform, ParseTransform) and transform.blank_lines == "drop"
                dropped = self.dropped_code(transform.name) if drops else None
                nodes.append(KernelNode(transform, taken, leaves, self.dead_code(transform.name), dropped))
                here = (here - arcs) | {leaves}
        return KernelPass(tuple(nodes))

    @staticmethod
    def _after(step: Step, present: set[int]) -> set[int]:
        if isinstance(step, KernelPass):
            for node in step.nodes:
                present = (present - set(node.arrivals)) | {node.leaves, node.dead}
            return present
        routed = {code for code, _ in step.routing}
        return (present - routed) | {code for _, outcome in step.routing for code in _codes(outcome)}

    def _layer(self, heads: list[int]) -> Layer:
        return _LayerBuilder(self, heads).build()


class _LayerBuilder:
    """Collects the conditions that the routing of one layer needs."""

    def __init__(self, layout: Layout, heads: list[int]) -> None:
        self._layout = layout
        self._heads = heads
        self._conditions: dict[str, tuple[str, list[int]]] = {}
        self._samples: dict[str, SampleTransform] = {}
        self._weights: list[Weight] = []

    def build(self) -> Layer:
        routing = tuple((head, self._head(head)) for head in self._heads)
        conditions = tuple(
            Condition(column, sql, tuple(at), self._samples.get(sql)) for sql, (column, at) in self._conditions.items()
        )
        return Layer(routing, conditions, tuple(self._weights))

    def _head(self, code: int) -> Outcome:
        place = self._layout.place(code)
        transform = None if place.kind == "fan" else self._layout.transform(place.node)
        if isinstance(transform, SampleTransform):
            return self._sample(transform, code)
        return self._onward(code, code)

    def _sample(self, transform: SampleTransform, head: int) -> Outcome:
        # Not folded further: what follows must see the new weight.
        sql = keep_condition(transform)
        self._samples[sql] = transform
        column = self._condition(sql, head)
        self._weights.append(Weight(head, column, weight_expression(transform), transform))
        then = Emit((self._layout.leave(transform.name),))
        return Choice(column, then, self._dropped(transform), self._dead(transform))

    def _onward(self, code: int, head: int) -> Outcome:
        """What becomes of a record at `code`, following filters, routes and fans as far as they go."""
        place = self._layout.place(code)
        if place.kind == "fan":
            return self._edge(place.edge, head)
        if place.kind != "arc":
            return Emit((code,))
        transform = self._layout.transform(place.node)
        if isinstance(transform, FilterTransform):
            column = self._condition(transform.condition, head)
            then = self._edge(transform.name, head)
            return Choice(column, then, self._dropped(transform), self._dead(transform))
        if isinstance(transform, RouteTransform):
            branches = tuple(
                (self._condition(route.condition, head), self._edge(f"{transform.name}.{route.name}", head))
                for route in transform.routes
            )
            return Branches(branches, self._edge(transform.outputs[-1], head), self._dead(transform))
        return Emit((code,))

    def _edge(self, edge: str, head: int) -> Outcome:
        parts = tuple(self._onward(code, head) for code in self._layout.arrivals(edge))
        return parts[0] if len(parts) == 1 else Union(parts)

    def _condition(self, sql: str, head: int) -> str:
        column, at = self._conditions.setdefault(sql, (f"is_{len(self._conditions)}", []))
        if head not in at:
            at.append(head)
        return column

    def _dropped(self, transform: Transform) -> Outcome:
        return Emit((self._layout.dropped_code(transform.name),))

    def _dead(self, transform: Transform) -> Outcome:
        return Emit((self._layout.dead_code(transform.name),))


def is_direct(node: Transform | Sink) -> bool:
    """Whether the router writes a sink itself: a stream on the same log."""
    return isinstance(node, Sink) and node.log_output is not None


def _codes(outcome: Outcome) -> set[int]:
    match outcome:
        case Emit(codes):
            return set(codes)
        case Choice(_, then, otherwise, failed):
            return _codes(then) | _codes(otherwise) | _codes(failed)
        case Branches(branches, unmatched, failed):
            return set().union(*(_codes(part) for _, part in branches), _codes(unmatched), _codes(failed))
        case Union(parts):
            return set().union(*(_codes(part) for part in parts))
