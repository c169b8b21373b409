"""The compiled pipeline: frozen nodes that are pinned to a batch and sent to executors.

This module defines the columns of each edge, names that the whole pipeline shares (of columns, edges and a kernel's
counts), and the base classes of sources, transforms and sinks. Particular transforms and sinks extend these classes in
their own files, in `logboom.pipeline.transforms` and `logboom.pipeline.sinks`. It must not know YAML, Spark, or how a
node works.

Every node is a frozen `msgspec.Struct`: hashable (so executors can cache what they build from a node), picklable, and
written to JSON and back without a change. Plans of earlier versions are pinned in checkpoints: a field may be added
with a default, but none may be renamed or change its meaning (tests/pipeline_core/test_pinned_plans.py).

The life of a row: a source's row has RAW_COLUMNS. A parse turns it into an event (EVENT_COLUMNS). `value`, `key` and
`headers` are kept only if `dead_reason` says why no rule could read the row. They are null for all other events, so
that data which is masked later is not kept beside the event. Dead rows pass through every later kernel unchanged.
"""

from __future__ import annotations

import hashlib
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import msgspec

from logboom.pipeline.plan.dials import Dial, DialValues, NamedDial
from logboom.pipeline.plan.outcomes import LayerScope, Outcome
from logboom.pipeline.plan.stores import StoreRef
from logboom.pipeline.plan.tables import TableRef

if TYPE_CHECKING:
    from pyarrow import RecordBatch

PLAN_FORMAT: Final = 1
"""Increased whenever an older plan on disk could be misread."""

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
"""The input columns of a transform that reads records, in addition to its `record_conditions`."""

WHEN_COLUMNS: Final[tuple[Column, ...]] = (*RAW_COLUMNS, ("line", "string"))
"""The columns in a `when` condition: the raw columns, and `line`, the value as text."""

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
"""The columns in a condition after a parse. Kernels have `attributes` as a string with one JSON object."""

DEAD_COLUMNS: Final[tuple[Column, ...]] = (
    ("dead_reason", "string"),
    ("dead_stage", "string"),
    ("timestamp", "timestamp"),
    ("key", "binary"),
    ("value", "binary"),
    ("headers", "array<struct<key:string,value:binary>>"),
)
"""The columns after EVENT_COLUMNS: null for a live event; the reason and the original record for a dead one."""

DROPPED: Final = "dropped"
"""Int column of a kernel that drops rows: 0 for rows that continue, else the position of the rule in
`KernelTransform.drop_rules`, counted from 1."""

SPLIT_FROM: Final = "split_from"
"""Int column of a kernel that makes several events of one: the number of the input row."""


def mask_column(label: str) -> str:
    """Int column with a mask's number of replacements per row, for rules with this label."""
    return f"masked_{label}"


def missed_column(name: str) -> str:
    """Int column with a transform's number of keys per row that its table does not have."""
    return f"missed_{name}"


def failed_column(name: str) -> str:
    """Int column with a transform's number of failures per row of the expression with this name."""
    return f"failed_{name}"


class AbstractStruct(msgspec.StructMeta, ABCMeta):
    """Metaclass of structs with abstract methods: a class that does not implement all of them cannot be
    instantiated."""


class Node(msgspec.Struct, frozen=True, kw_only=True, metaclass=AbstractStruct):
    """A named node of the graph. `line`: its line in the file that contains it."""

    name: str
    line: int
    in_file: str | msgspec.UnsetType = msgspec.UNSET
    """The included file that contains it; empty for the pipeline's own file."""

    @property
    def place(self) -> str:
        """Its location for messages: `line 7`, or `line 7 of parts/search.yaml`."""
        return f"line {self.line}" if self.in_file is msgspec.UNSET else f"line {self.line} of {self.in_file}"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Its output edges. The place of a record that leaves the node is one of these."""
        return (self.name,)

    @property
    def optional_outputs(self) -> tuple[str, ...]:
        """Optional outputs: there is no warning if they have no reader."""
        return ()


class StreamSource(Node, frozen=True, kw_only=True, tag="stream_source"):
    """Records of one or more streams. Exactly one of `streams` and `pattern` (a Java regex over names) is set."""

    streams: tuple[str, ...] = ()
    pattern: str | None = None
    start: Literal["earliest", "latest"] = "earliest"
    on_data_loss: Literal["fail", "continue"] = "fail"
    from_ms: int | msgspec.UnsetType = msgspec.UNSET
    """If set, a pipeline without a checkpoint begins with the first record of this timestamp or later, in milliseconds
    since 1970."""
    until_ms: int | msgspec.UnsetType = msgspec.UNSET
    """If set, records of this timestamp or later are skipped."""


class KeyRef(msgspec.Struct, frozen=True, kw_only=True):
    """Where the secret key is found when the plan runs. A plan never contains the key itself."""

    env: str | None = None
    file: str | None = None

    @property
    def id(self) -> str:
        """Its name in `keys`."""
        return f"env:{self.env}" if self.env is not None else f"file:{self.file}"


class Consumer(Node, frozen=True, kw_only=True):
    """A node that reads edges."""

    inputs: tuple[str, ...]
    """The input edges, without duplicates."""


class Transform(Consumer, frozen=True, kw_only=True):
    """The base of all transforms. Each kind of transform extends one of the two classes below, in its own file in
    `logboom.pipeline.transforms`."""

    named_dials: tuple[NamedDial, ...] | msgspec.UnsetType = msgspec.UNSET
    """The dials that the pipeline's file declares. Omitted from JSON if empty, for compatibility with earlier plans."""

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        """Settings that can be changed while the pipeline runs. If the file declares no names, the first dial has the
        transform's name and the others are called `TRANSFORM.SETTING`."""
        return ()

    @property
    def dials(self) -> tuple[Dial, ...]:
        """Its dials by name."""
        own = {named.setting: named for named in self.named_dials or ()}
        found = []
        for number, dial in enumerate(self.settings_with_dials):
            name = dial.name or (self.name if number == 0 else f"{self.name}.{dial.setting}")
            named = own.get(dial.setting, NamedDial(setting=dial.setting, name=name))
            found.append(dial.named(named))
        return tuple(found)

    @property
    def drop_rules(self) -> tuple[str, ...]:
        """The names under which dropped rows are counted."""
        return ()

    def turned(self, values: DialValues) -> Self:
        """The transform with these values, by setting. Its outputs and places do not change."""
        return msgspec.structs.replace(self, **values)

    @property
    def key_refs(self) -> tuple[KeyRef, ...]:
        """The secret keys that it needs."""
        return ()

    @property
    def table_refs(self) -> tuple[TableRef, ...]:
        """The tables that it uses. `keys` has the path of each table's file under `TableRef.id`."""
        return ()

    @property
    def changes_weights(self) -> bool:
        """Whether it changes weights by anything other than the hash of samples (see `plan.sampling`)."""
        return False


class KernelTransform(Transform, frozen=True, kw_only=True):
    """A transform that works on the columns of whole Arrow batches.

    Its kernel returns as many rows as it gets, in order, except if it `splits`. A row that it cannot process gets a
    `dead_reason`.
    """

    reads_records: ClassVar[bool] = False
    """Whether its input is raw records and its output events; the input of all others is events."""

    @property
    def record_conditions(self) -> tuple[tuple[str, str], ...]:
        """Boolean columns that it needs in addition to raw records: each name, with the SQL over WHEN_COLUMNS for its
        values. If the SQL fails, the value is null; if it is null, the value is false."""
        return ()

    @property
    def event_values(self) -> tuple[tuple[str, str], ...]:
        """Text columns that it needs in addition to events: each name, with the SQL over EVENT_COLUMNS. The value is
        JSON, `{"v": value}`, without `v` for null; it is null if the SQL failed, or if it is null because a part
        failed. If there are any, the transform is the first in its pass."""
        return ()

    @property
    def splits(self) -> bool:
        """Whether its kernel makes several adjacent rows of one; it then adds the column SPLIT_FROM."""
        return False

    @property
    def mask_labels(self) -> tuple[str, ...]:
        """Labels by which it counts replacements per row: one count column for each (see `mask_column`)."""
        return ()

    @property
    def miss_labels(self) -> tuple[str, ...]:
        """Names by which it counts missing table keys per row (see `missed_column`)."""
        return ()

    @property
    def failure_labels(self) -> tuple[str, ...]:
        """Names by which it counts failed expressions per row (see `failed_column`)."""
        return ()

    @property
    def drop_rules(self) -> tuple[str, ...]:
        """As for every transform. If there are any, its kernel adds the column DROPPED."""
        return ()

    @abstractmethod
    def run(self, batch: RecordBatch, keys: Mapping[str, bytes]) -> RecordBatch:
        """Run the kernel on a batch. Unknown columns are passed through. `keys`: by `KeyRef.id`."""


class RoutingTransform(Transform, frozen=True, kw_only=True):
    """A transform that routes events by conditions, and changes only their weights."""

    opens_layer: ClassVar[bool] = False
    """Whether its conditions need the columns as changed by previous transforms."""

    @property
    def drop_rules(self) -> tuple[str, ...]:
        return (self.name,)

    @abstractmethod
    def outcome(self, layer: LayerScope) -> Outcome:
        """The destinations of its events, depending on conditions that it registers with the layer."""


ATTEMPTS_DEFAULT: Final = 8


class LogOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What the router writes to a sink that is a stream on the pipeline's own log."""

    stream: str
    body_only: bool = False
    """Whether the record's value is only the body, instead of the whole event."""
    key: str | None = None
    """The text column that becomes the record's key."""


class Sink(Consumer, frozen=True, kw_only=True):
    """The base of all sinks. Each kind of sink extends this in its own file in `logboom.pipeline.sinks`."""

    on_failure: Literal["dead_letter", "retry"] = "dead_letter"
    """What happens to a batch that fails: dead letters after `attempts`, or retries forever."""
    attempts: int = ATTEMPTS_DEFAULT
    """How often a batch is tried before it becomes dead letters, or before a run with an end gives up."""

    @property
    def log_output(self) -> LogOutput | None:
        """Set if the router itself writes the sink; None if a delivery reads the sink's edges from the log."""
        return None

    @property
    def output_stream(self) -> tuple[str, str | None] | None:
        """The stream that it writes and its brokers (None: the pipeline's own); None for other sinks."""
        return None

    @property
    def output_directory(self) -> str | None:
        """The directory that only this sink writes to, as in the pipeline's file; None if it has none."""
        return None

    @property
    def output_file(self) -> str | None:
        """The path of the files that it writes lines to, as in the pipeline's file, which may have parts in braces."""
        return None

    @property
    def output_url(self) -> str | None:
        """The object store prefix that only this sink writes to; None if it has none."""
        return None

    @property
    def batch_records_max(self) -> int:
        """Records in one batch of its delivery. It should be some seconds of work: a stop waits for the batch, and
        planning and committing a batch takes the time of thousands of records."""
        return 200_000

    @property
    def interval_ms(self) -> int:
        """Time in ms between the starts of two batches of its delivery: how long an event may wait for others."""
        return 2_000

    @property
    def secret_refs(self) -> tuple[tuple[str, KeyRef], ...]:
        """Its credentials: the key in the file, without `_env` or `_file`, and where the credential is found."""
        return ()


class TestInput(msgspec.Struct, frozen=True, kw_only=True):
    """One record that a test feeds to a source. Times are RFC 3339; headers have names and texts."""

    __test__ = False

    source: str
    line: int
    value: str | None = None
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timestamp: str | None = None


class TestExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """Expected records at an edge, a sink, `dropped` or `dead` (or `dropped:NAME`, `dead:NAME`)."""

    __test__ = False

    at: str
    line: int
    fields: tuple[tuple[str, str], ...] = ()
    """Column, or path below `attributes`, and the JSON text of the value it must have."""
    condition: str | None = None
    """SQL that must be true for one record there."""
    count: int | None = None
    """Exactly this number of records; None: at least one that matches `fields` and `condition`."""


class PipelineTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test in the pipeline's own file."""

    name: str
    line: int
    inputs: tuple[TestInput, ...]
    expect: tuple[TestExpectation, ...]
    in_file: str | msgspec.UnsetType = msgspec.UNSET
    """The included file that contains it."""


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """SQL to be checked: its type must be `wants`, over exactly these columns. A `pattern` is a Java regular expression
    instead."""

    sql: str
    columns: tuple[Column, ...]
    line: int
    where: str
    wants: Literal["boolean", "any", "pattern", "timestamp", "int"] = "boolean"
    file: str | None = None
    """The included file that contains it."""


class PlanWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A warning: the pipeline runs, but this is probably a mistake."""

    where: str
    line: int | None
    message: str
    file: str | None = None
    """The included file that it is about."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pipeline. Transforms are in topological order; every input is an existing edge."""

    name: str
    file: str
    format: int = PLAN_FORMAT
    bootstrap: str | None = None
    checkpoint: str
    """As written in the file, or `./checkpoints/NAME`. The runner resolves relative paths (`paths`)."""
    checkpoint_store: StoreRef | msgspec.UnsetType = msgspec.UNSET
    """The object store that contains the checkpoint."""
    work_dir: str | msgspec.UnsetType = msgspec.UNSET
    """The working directory for a checkpoint in an object store, as written in the file."""
    max_records_per_batch: int = 500_000
    trigger_interval_ms: int = 1_000
    sources: tuple[StreamSource, ...]
    transforms: tuple[Transform, ...]
    sinks: tuple[Sink, ...]
    tests: tuple[PipelineTest, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()

    def to_json(self) -> str:
        """The whole plan as JSON, which `from_json` decodes to an equal plan."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_json(
        text: str,
        read_transform: Callable[[Mapping[str, Any]], Transform],
        read_sink: Callable[[Mapping[str, Any]], Sink],
    ) -> Plan:
        """Decode the output of `to_json`; ValueError (msgspec.ValidationError) for anything else or a newer format.

        `read_transform`, `read_sink`: decode a node from plain data, whose key `type` is the node's tag.
        """
        tree = msgspec.json.decode(text, type=dict[str, Any])
        plan = msgspec.convert({**tree, "transforms": (), "sinks": ()}, type=Plan)
        if plan.format != PLAN_FORMAT:
            raise ValueError(f"this plan has format {plan.format}; this version of logboom reads format {PLAN_FORMAT}")
        transforms = msgspec.convert(tree.get("transforms"), type=list[dict[str, Any]])
        sinks = msgspec.convert(tree.get("sinks"), type=list[dict[str, Any]])
        return msgspec.structs.replace(
            plan, transforms=tuple(map(read_transform, transforms)), sinks=tuple(map(read_sink, sinks))
        )

    def content_hash(self) -> str:
        """Equal for pipelines that process records in the same way: file name, lines, tests and warnings are
        ignored."""
        running = msgspec.structs.replace(self, file="", tests=(), warnings=(), work_dir=msgspec.UNSET)
        tree = _without_lines(msgspec.to_builtins(running))
        return hashlib.sha256(msgspec.json.encode(tree, order="sorted")).hexdigest()[:16]

    def nodes(self) -> Iterator[StreamSource | Transform | Sink]:
        """All nodes, inputs first."""
        yield from self.sources
        yield from self.transforms
        yield from self.sinks

    def consumers(self, edge: str) -> tuple[Consumer, ...]:
        """The nodes that read this edge. If there are none, its records are dropped under the edge's name."""
        return tuple(node for node in (*self.transforms, *self.sinks) if edge in node.inputs)

    def mask_labels(self) -> tuple[str, ...]:
        """Labels of all masks, without duplicates: the count columns of events."""
        kernels = (node for node in self.transforms if isinstance(node, KernelTransform))
        return tuple(dict.fromkeys(label for kernel in kernels for label in kernel.mask_labels))

    def miss_labels(self) -> tuple[str, ...]:
        """Names of all transforms that use tables."""
        kernels = (node for node in self.transforms if isinstance(node, KernelTransform))
        return tuple(dict.fromkeys(label for kernel in kernels for label in kernel.miss_labels))

    def failure_labels(self) -> tuple[str, ...]:
        """Names of all expressions in kernels that can fail."""
        kernels = (node for node in self.transforms if isinstance(node, KernelTransform))
        return tuple(dict.fromkeys(label for kernel in kernels for label in kernel.failure_labels))

    def table_refs(self) -> tuple[TableRef, ...]:
        """The tables that are loaded before a batch runs."""
        return tuple(ref for node in self.transforms for ref in node.table_refs)

    def dials(self) -> tuple[Dial, ...]:
        """All dials."""
        return tuple(dial for node in self.transforms for dial in node.dials)

    def turned(self, values: DialValues) -> Plan:
        """The plan with these dial values, by name. Unknown names and invalid values are ignored."""
        if not values:
            return self
        nodes = []
        for node in self.transforms:
            taken = {
                dial.setting: dial.fitted(values[dial.name])
                for dial in node.dials
                if dial.name in values and dial.problem(values[dial.name]) is None
            }
            nodes.append(node.turned(taken) if taken else node)
        return msgspec.structs.replace(self, transforms=tuple(nodes))

    def key_refs(self) -> tuple[KeyRef, ...]:
        """The secret keys that the plan needs to run."""
        return tuple(dict.fromkeys(ref for node in self.transforms for ref in node.key_refs))


def _without_lines(tree: object) -> object:
    if isinstance(tree, dict):
        kept = ((key, value) for key, value in tree.items() if not key.endswith("line") and key != "in_file")
        return {key: _without_lines(value) for key, value in kept}
    if isinstance(tree, list | tuple):
        return [_without_lines(value) for value in tree]
    return tree
