"""The compiled pipeline: frozen nodes that describe themselves, ready to be pinned to a batch and sent to executors.

It knows the shapes (which columns stand on which edge) and the words both halves of the pipeline agree on: column
names, edge names, the counts a kernel adds. It must not know YAML, Arrow, Spark or how a node does its work.

Everything here is a frozen `msgspec.Struct`: hashable (so executors can cache what they build from a node), picklable,
and written to JSON and back without a change.

The life of a row. A source's row carries RAW_COLUMNS. A parse turns it into an event (EVENT_COLUMNS): `value`, `key`
and `headers` are kept only where `dead_reason` says why no rule could read it, and are null on every event that goes
on, so that nothing masked later survives in bytes beside it. Dead rows pass through every later kernel untouched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final, Literal

import msgspec

PLAN_FORMAT: Final = 1
"""Raised whenever an older plan on disk could be read wrongly."""

Column = tuple[str, str]
"""A column's name and its Spark SQL type."""

RAW_COLUMNS: Final[tuple[Column, ...]] = (
    ("source", "string"),
    ("stream", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("key", "binary"),
    ("value", "binary"),
    ("headers", "array<struct<key:string,value:binary>>"),
)
"""What `parse_batch` is given, beside the `when` columns of its rules; other columns (`at`) pass through untouched."""

WHEN_COLUMNS: Final[tuple[Column, ...]] = (*RAW_COLUMNS, ("line", "string"))
"""What a `when` condition sees: the raw columns, and `line`, the value as text."""

EVENT_COLUMNS: Final[tuple[Column, ...]] = (
    ("time", "timestamp"),
    ("observed_time", "timestamp"),
    ("severity_number", "int"),
    ("severity_text", "string"),
    ("service", "string"),
    ("host", "string"),
    ("body", "string"),
    ("attributes", "variant"),
    ("trace_id", "string"),
    ("span_id", "string"),
    ("event_id", "string"),
    ("weight", "double"),
    ("source", "string"),
    ("stream", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
)
"""What a condition behind a parse sees. Kernels carry `attributes` as a string holding one JSON object."""

DEAD_COLUMNS: Final[tuple[Column, ...]] = (
    ("dead_reason", "string"),
    ("dead_stage", "string"),
    ("timestamp", "timestamp"),
    ("key", "binary"),
    ("value", "binary"),
    ("headers", "array<struct<key:string,value:binary>>"),
)
"""What `parse_batch` adds behind EVENT_COLUMNS: all null on a live event; on a dead one the original record."""

UNMATCHED: Final = "unmatched"
"""The output of a route for events that no condition took."""


def mask_column(label: str) -> str:
    """The int column in which `mask_batch` counts, per row, what the rules of this label replaced."""
    return f"masked_{label}"


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One named thing of the graph. `line` is its line in the pipeline's file."""

    name: str
    line: int

    @property
    def outputs(self) -> tuple[str, ...]:
        """The edges that leave it; a record behind it stands `at` one of them."""
        return (self.name,)


class StreamSource(Node, frozen=True, kw_only=True, tag="stream_source"):
    """Records of one or more streams. Exactly one of `streams` and `pattern` (a Java regex over names) is set."""

    streams: tuple[str, ...] = ()
    pattern: str | None = None
    start: Literal["earliest", "latest"] = "earliest"
    on_data_loss: Literal["fail", "continue"] = "fail"


class JsonFormat(msgspec.Struct, frozen=True, tag="json"):
    """One JSON object (RFC 8259) per record."""


class LogfmtFormat(msgspec.Struct, frozen=True, tag="logfmt"):
    """`key=value key="quoted value" flag`."""


class KeyValueFormat(msgspec.Struct, frozen=True, kw_only=True, tag="key_value"):
    """Pairs with separators of the user's choice."""

    pair_separator: str = " "
    key_value_separator: str = "="


class CsvFormat(msgspec.Struct, frozen=True, kw_only=True, tag="csv"):
    """One RFC 4180 row per record."""

    columns: tuple[str, ...]
    delimiter: str = ","


class TextFormat(msgspec.Struct, frozen=True, tag="text"):
    """The whole line becomes the body."""


class SyslogFormat(msgspec.Struct, frozen=True, kw_only=True, tag="syslog"):
    """RFC 3164 (with or without PRI, as files have it) or RFC 5424."""

    rfc: Literal[3164, 5424]


FieldType = Literal["string", "int", "float"]


class PatternField(msgspec.Struct, frozen=True):
    """A named group: `group` in the expression, the name of the field it fills, and the type of its value."""

    group: str
    name: str
    type: FieldType = "string"


class PatternFormat(msgspec.Struct, frozen=True, kw_only=True, tag="pattern"):
    """RE2 expressions, all `%{NAME}` already replaced; the first that matches the whole line gives the fields."""

    expressions: tuple[str, ...]
    fields: tuple[tuple[PatternField, ...], ...]
    label: str = "pattern"


Format = JsonFormat | LogfmtFormat | KeyValueFormat | CsvFormat | TextFormat | SyslogFormat | PatternFormat


class ParseRule(msgspec.Struct, frozen=True, kw_only=True):
    """How some records are read. It applies where `source` (if set) is the record's and `when` (if set) is true."""

    label: str
    line: int
    format: Format
    source: str | None = None
    when: str | None = None
    when_column: str | None = None
    """The boolean column that carries the value of `when`; Spark computes it before the kernel runs."""
    time_formats: tuple[str, ...] = ()
    """Empty: recognise the common ones."""
    timezone: str = "UTC"
    """IANA name for times that carry no zone of their own."""
    mapping: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Shape field -> names of the fields that may fill it, first present wins; beside the built-in names."""
    defaults: tuple[tuple[str, str], ...] = ()
    """Shape field -> text where neither line nor headers have one."""
    severity_texts: tuple[tuple[str, int], ...] = ()
    severity_scale: Literal["otel", "syslog", "pino", "python", "http"] = "otel"
    """What a severity that is a number means."""
    body_format: Literal["json", "logfmt"] | None = None
    """Read the body once more where it parses as this; its fields join the event's."""


class ParseTransform(Node, frozen=True, kw_only=True, tag="parse"):
    """Raw records in, events out; in rows are out rows, some of them dead."""

    inputs: tuple[str, ...]
    rules: tuple[ParseRule, ...]
    otherwise: Literal["dead", "keep"] = "dead"
    """`keep`: a line no rule can read becomes an event whose body is the line."""
    blank_lines: Literal["dead", "drop", "keep"] = "dead"
    """Lines of blanks alone: as any line no rule reads, dropped under this name, or events with an empty body."""


class FilterTransform(Node, frozen=True, kw_only=True, tag="filter"):
    """Keeps events whose condition is true; false and null are dropped under this name."""

    inputs: tuple[str, ...]
    condition: str
    condition_line: int = 0


class KeyRef(msgspec.Struct, frozen=True, kw_only=True):
    """Where the secret key of a mask is found when it runs. The key itself is in no plan."""

    env: str | None = None
    file: str | None = None

    @property
    def id(self) -> str:
        """The name under which `keys` holds it."""
        return f"env:{self.env}" if self.env is not None else f"file:{self.file}"


class MaskRule(msgspec.Struct, frozen=True, kw_only=True):
    """One detector and what to do with what it finds."""

    label: str
    line: int
    kind: Literal["email", "ipv4", "ipv6", "card", "token", "pattern"]
    action: Literal["hash", "redact", "keep_last"]
    pattern: str | None = None
    """RE2, for kind `pattern` alone; a group named `secret`, or the only group, limits what is replaced."""
    keep: int = 4
    replacement: str | None = None
    """For `redact`; None: `[label]`."""


class MaskTransform(Node, frozen=True, kw_only=True, tag="mask"):
    """Replaces secrets in `fields` (string columns of the event, `attributes` or `attributes.NAME`)."""

    inputs: tuple[str, ...]
    rules: tuple[MaskRule, ...]
    fields: tuple[str, ...] = ("body", "attributes")
    key: KeyRef | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the rules, each once, in order: one count column each (see `mask_column`)."""
        return tuple(dict.fromkeys(rule.label for rule in self.rules))


class SampleTransform(Node, frozen=True, kw_only=True, tag="sample"):
    """Keeps one in `rate` by the hash of `key`; see `logboom.pipeline.plan.sampling` for the expressions."""

    inputs: tuple[str, ...]
    rate: float
    key: str = "trace_id"
    """A column or SQL expression; where it is null the event id decides."""
    exclude: str | None = None
    """Events for which this is true are always kept, at their weight."""
    condition_line: int = 0
    follows_weight: bool = False
    """Set where every sample before this one used the same key: the rate then counts from their weight on."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One output of a route and its condition."""

    name: str
    line: int
    condition: str


class RouteTransform(Node, frozen=True, kw_only=True, tag="route"):
    """Sends an event to every route whose condition is true, or to `NAME.unmatched` where none is."""

    inputs: tuple[str, ...]
    routes: tuple[Route, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        return (*(f"{self.name}.{route.name}" for route in self.routes), f"{self.name}.{UNMATCHED}")


Transform = ParseTransform | FilterTransform | MaskTransform | SampleTransform | RouteTransform


ATTEMPTS_DEFAULT: Final = 8


class LogOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What the router writes for a sink that is a stream of the log it reads."""

    stream: str
    body_only: bool = False
    """The record's value is the body instead of the whole event."""
    key: str | None = None
    """A text column that becomes the record's key."""


class Sink(Node, frozen=True, kw_only=True):
    """What every sink has. Each kind of sink extends this in its own file in `logboom.pipeline.sinks`."""

    inputs: tuple[str, ...]
    on_failure: Literal["dead_letter", "retry"] = "dead_letter"
    """What becomes of a batch that fails: dead letters after `attempts`, or another try for ever."""
    attempts: int = ATTEMPTS_DEFAULT
    """How often a batch is tried before it becomes dead letters, or before a run with an end gives up."""

    @property
    def log_output(self) -> LogOutput | None:
        """Set where the router writes the sink itself; None where a delivery reads the sink's edges from the log."""
        return None

    @property
    def output_stream(self) -> tuple[str, str | None] | None:
        """The stream it writes and the brokers that have it (None: the pipeline's own); None for any other sink."""
        return None

    @property
    def output_directory(self) -> str | None:
        """The directory whose files are the sink's alone, as the pipeline's file names it; None where it has none."""
        return None


class TestInput(msgspec.Struct, frozen=True, kw_only=True):
    """One record that a test gives to a source. Times are RFC 3339; headers are name and text."""

    __test__ = False

    source: str
    line: int
    value: str | None = None
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timestamp: str | None = None


class TestExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """What must stand at an edge, a sink, `dropped` or `dead` (or `dropped:NAME`, `dead:NAME`)."""

    __test__ = False

    at: str
    line: int
    fields: tuple[tuple[str, str], ...] = ()
    """Column, or path below `attributes`, and the JSON text of the value it must have."""
    condition: str | None = None
    """SQL that must be true of one record there."""
    count: int | None = None
    """Exactly so many records; None: at least one that fits `fields` and `condition`."""


class PipelineTest(msgspec.Struct, frozen=True, kw_only=True):
    """An example in the pipeline's own file."""

    name: str
    line: int
    inputs: tuple[TestInput, ...]
    expect: tuple[TestExpectation, ...]


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """SQL to be checked: it must have the type `wants` over exactly these columns. A `pattern` is a Java regular
    expression instead."""

    sql: str
    columns: tuple[Column, ...]
    line: int
    where: str
    wants: Literal["boolean", "any", "pattern"] = "boolean"


class PlanWarning(msgspec.Struct, frozen=True, kw_only=True):
    """Something that runs but is hardly meant."""

    where: str
    line: int | None
    message: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pipeline. Transforms stand in topological order; every input names an edge that exists."""

    name: str
    file: str
    format: int = PLAN_FORMAT
    bootstrap: str | None = None
    checkpoint: str
    """As written in the file, or `./checkpoints/NAME`; relative paths are the runner's to resolve."""
    max_records_per_batch: int = 500_000
    trigger_interval_ms: int = 1_000
    sources: tuple[StreamSource, ...]
    transforms: tuple[Transform, ...]
    sinks: tuple[Sink, ...]
    tests: tuple[PipelineTest, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()

    def to_json(self) -> str:
        """The whole plan as JSON; `from_json` gives an equal one back."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_json(text: str, sink_types: Sequence[type[Sink]]) -> Plan:
        """Read back what `to_json` wrote; ValueError (msgspec.ValidationError) for anything else or a newer format.

        `sink_types`: the kinds of sinks there are, told apart by their tags.
        """
        tree = msgspec.json.decode(text, type=dict[str, Any])
        any_sink: Any = reduce(or_, sink_types)
        sinks = tuple(msgspec.convert(sink, type=any_sink) for sink in tree.pop("sinks", ()))
        plan = msgspec.structs.replace(msgspec.convert({**tree, "sinks": ()}, type=Plan), sinks=sinks)
        if plan.format != PLAN_FORMAT:
            raise ValueError(f"this plan has format {plan.format}; this version of logboom reads format {PLAN_FORMAT}")
        return plan

    def content_hash(self) -> str:
        """Equal for pipelines that do the same to a record: file name, lines, tests and warnings do not count."""
        running = msgspec.structs.replace(self, file="", tests=(), warnings=())
        tree = _without_lines(msgspec.to_builtins(running))
        return hashlib.sha256(msgspec.json.encode(tree, order="sorted")).hexdigest()[:16]

    def nodes(self) -> Iterator[StreamSource | Transform | Sink]:
        """All nodes in an order in which inputs come first."""
        yield from self.sources
        yield from self.transforms
        yield from self.sinks

    def consumers(self, edge: str) -> tuple[Transform | Sink, ...]:
        """The nodes that read this edge; none means its records are dropped under the edge's name."""
        return tuple(node for node in (*self.transforms, *self.sinks) if edge in node.inputs)

    def mask_labels(self) -> tuple[str, ...]:
        """Labels of all masks, each once: the count columns an event may carry."""
        masks = (node for node in self.transforms if isinstance(node, MaskTransform))
        return tuple(dict.fromkeys(label for mask in masks for label in mask.labels))

    def key_refs(self) -> tuple[KeyRef, ...]:
        """The secret keys to be found before the plan can run."""
        masks = (node for node in self.transforms if isinstance(node, MaskTransform))
        return tuple(dict.fromkeys(mask.key for mask in masks if mask.key is not None))


def _without_lines(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: _without_lines(value) for key, value in tree.items() if not key.endswith("line")}
    if isinstance(tree, list | tuple):
        return [_without_lines(value) for value in tree]
    return tree
