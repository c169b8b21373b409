"""The compiled pipeline: frozen nodes that describe themselves, ready to be pinned to a batch and sent to executors.

It knows which columns are on which edge, the words that all of the pipeline agrees on (names of columns and edges,
the counts a kernel adds), and what every source, transform and sink has. The particular transforms and sinks extend
these classes in files of their own, `logboom.pipeline.transforms` and `logboom.pipeline.sinks`. It must not know YAML,
Spark, or how a node does its work.

Every node is a frozen `msgspec.Struct`: hashable (so executors can cache what they build from a node), picklable, and
written to JSON and back without a change. Plans of earlier versions are pinned in checkpoints: a field may be added
with a default, but none may be renamed or change its meaning (tests/pipeline_core/test_pinned_plans.py).

The life of a row. A source's row carries RAW_COLUMNS. A parse turns it into an event (EVENT_COLUMNS): `value`, `key`
and `headers` are kept only where `dead_reason` says why no rule could read it, and are null on every event that goes
on, so that nothing masked later survives in bytes beside it. Dead rows pass through every later kernel untouched.
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
"""What a transform that reads records is given, beside its `record_conditions`."""

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
"""What follows EVENT_COLUMNS: all null on a live event; on a dead one the reason and the original record."""

DROPPED: Final = "dropped"
"""The int column that a kernel which drops rows adds: 0 for rows that go on, else the position of the rule in
`KernelTransform.drop_rules`, counted from 1."""

SPLIT_FROM: Final = "split_from"
"""The int column that a kernel which makes several events of one adds: the row that each of its rows came from."""


def mask_column(label: str) -> str:
    """The int column in which a mask counts, by row, what its rules of this label replaced."""
    return f"masked_{label}"


def missed_column(name: str) -> str:
    """The int column in which a transform counts, by row, the keys that its table does not have."""
    return f"missed_{name}"


def failed_column(name: str) -> str:
    """The int column in which a transform counts, by row, that an expression of this name failed."""
    return f"failed_{name}"


class AbstractStruct(msgspec.StructMeta, ABCMeta):
    """The metaclass of structs with abstract methods: one that leaves a method out cannot be made."""


class Node(msgspec.Struct, frozen=True, kw_only=True, metaclass=AbstractStruct):
    """One named thing of the graph. `line` is its line in the file that it stands in."""

    name: str
    line: int
    in_file: str | msgspec.UnsetType = msgspec.UNSET
    """The included file that it stands in; left out where that is the pipeline's own."""

    @property
    def place(self) -> str:
        """Where it stands, for messages: `line 7`, or `line 7 of parts/search.yaml`."""
        return f"line {self.line}" if self.in_file is msgspec.UNSET else f"line {self.line} of {self.in_file}"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The edges that leave it; a record that leaves the node is `at` one of them."""
        return (self.name,)

    @property
    def optional_outputs(self) -> tuple[str, ...]:
        """Those of its outputs that are there for who wants them: nobody is warned that they have no reader."""
        return ()


class StreamSource(Node, frozen=True, kw_only=True, tag="stream_source"):
    """Records of one or more streams. Exactly one of `streams` and `pattern` (a Java regex over names) is set."""

    streams: tuple[str, ...] = ()
    pattern: str | None = None
    start: Literal["earliest", "latest"] = "earliest"
    on_data_loss: Literal["fail", "continue"] = "fail"
    from_ms: int | msgspec.UnsetType = msgspec.UNSET
    """With it, a pipeline without a checkpoint begins with the first record of this timestamp or a later one, in
    milliseconds since 1970."""
    until_ms: int | msgspec.UnsetType = msgspec.UNSET
    """With it, records of this timestamp or a later one are passed over."""


class KeyRef(msgspec.Struct, frozen=True, kw_only=True):
    """Where a secret key is found when the plan runs. The key itself is in no plan."""

    env: str | None = None
    file: str | None = None

    @property
    def id(self) -> str:
        """The name under which `keys` holds it."""
        return f"env:{self.env}" if self.env is not None else f"file:{self.file}"


class Consumer(Node, frozen=True, kw_only=True):
    """A node that reads edges."""

    inputs: tuple[str, ...]
    """The edges, each once."""


class Transform(Consumer, frozen=True, kw_only=True):
    """What every transform has. Each kind of transform extends one of the two classes below in its own file in
    `logboom.pipeline.transforms`."""

    named_dials: tuple[NamedDial, ...] | msgspec.UnsetType = msgspec.UNSET
    """The dials that the pipeline's file names. Left out of a plan that has none, as before there were any."""

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        """What of it can be changed while the pipeline runs. The first has a dial of the transform's name, if the file
        names none, the others have `TRANSFORM.SETTING`."""
        return ()

    @property
    def dials(self) -> tuple[Dial, ...]:
        """Its dials under their names."""
        own = {named.setting: named for named in self.named_dials or ()}
        found = []
        for number, dial in enumerate(self.settings_with_dials):
            name = dial.name or (self.name if number == 0 else f"{self.name}.{dial.setting}")
            named = own.get(dial.setting, NamedDial(setting=dial.setting, name=name))
            found.append(dial.named(named))
        return tuple(found)

    @property
    def drop_rules(self) -> tuple[str, ...]:
        """The names under which it drops rows and they are counted."""
        return ()

    def turned(self, values: DialValues) -> Self:
        """The transform with these values, by setting. Its outputs and places stay what they are."""
        return msgspec.structs.replace(self, **values)

    @property
    def key_refs(self) -> tuple[KeyRef, ...]:
        """The secret keys that it works with."""
        return ()

    @property
    def table_refs(self) -> tuple[TableRef, ...]:
        """The tables that it looks up. `keys` has the path of each one's file under `TableRef.id`."""
        return ()

    @property
    def changes_weights(self) -> bool:
        """Whether it changes weights by anything but the hash that samples decide by (see `plan.sampling`)."""
        return False


class KernelTransform(Transform, frozen=True, kw_only=True):
    """A transform that works on the columns of whole Arrow batches.

    Its kernel gives as many rows as it gets, in their order, but for one that `splits`. A row that it cannot handle
    gets a `dead_reason`.
    """

    reads_records: ClassVar[bool] = False
    """Whether it takes raw records and gives events; all others take events."""

    @property
    def record_conditions(self) -> tuple[tuple[str, str], ...]:
        """Boolean columns that it needs beside raw records: the name of each, and the SQL over WHEN_COLUMNS that Spark
        fills it with. What Spark evaluates is null if it failed, and false where it is null."""
        return ()

    @property
    def event_values(self) -> tuple[tuple[str, str], ...]:
        """Text columns that it needs beside events: the name of each, and the SQL over EVENT_COLUMNS whose value
        Spark puts there as JSON, `{"v": value}`, without `v` for null; null if computing it failed, or gave null for
        a part that failed. With any, it is the first of its pass."""
        return ()

    @property
    def splits(self) -> bool:
        """Whether its kernel makes several rows of one, which follow each other; it then adds the column SPLIT_FROM."""
        return False

    @property
    def mask_labels(self) -> tuple[str, ...]:
        """Labels under which it counts, by row, what it replaced: one count column each (see `mask_column`)."""
        return ()

    @property
    def miss_labels(self) -> tuple[str, ...]:
        """Names under which it counts, by row, keys that a table does not have (see `missed_column`)."""
        return ()

    @property
    def failure_labels(self) -> tuple[str, ...]:
        """Names under which it counts, by row, expressions that failed (see `failed_column`)."""
        return ()

    @property
    def drop_rules(self) -> tuple[str, ...]:
        """As of every transform; with any, its kernel adds the column DROPPED."""
        return ()

    @abstractmethod
    def run(self, batch: RecordBatch, keys: Mapping[str, bytes]) -> RecordBatch:
        """The batch behind the kernel; columns that it does not know are passed on. `keys`: by `KeyRef.id`."""


class RoutingTransform(Transform, frozen=True, kw_only=True):
    """A transform that decides by conditions alone where an event goes, and changes nothing in it but its weight."""

    opens_layer: ClassVar[bool] = False
    """Whether it must see the values of columns that transforms before it have changed."""

    @property
    def drop_rules(self) -> tuple[str, ...]:
        return (self.name,)

    @abstractmethod
    def outcome(self, layer: LayerScope) -> Outcome:
        """Where its events go, in terms of conditions that it asks the layer for."""


ATTEMPTS_DEFAULT: Final = 8


class LogOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What the router writes for a sink that is a stream of the log it reads."""

    stream: str
    body_only: bool = False
    """The record's value is the body instead of the whole event."""
    key: str | None = None
    """A text column that becomes the record's key."""


class Sink(Consumer, frozen=True, kw_only=True):
    """What every sink has. Each kind of sink extends this in its own file in `logboom.pipeline.sinks`."""

    on_failure: Literal["dead_letter", "retry"] = "dead_letter"
    """What becomes of a batch that fails: dead letters after `attempts`, or another try for ever."""
    attempts: int = ATTEMPTS_DEFAULT
    """How often a batch is tried before it becomes dead letters, or before a run with an end gives up."""

    @property
    def log_output(self) -> LogOutput | None:
        """Set where the router writes the sink itself; None if a delivery reads the sink's edges from the log."""
        return None

    @property
    def output_stream(self) -> tuple[str, str | None] | None:
        """The stream it writes and the brokers that have it (None: the pipeline's own); None for any other sink."""
        return None

    @property
    def output_directory(self) -> str | None:
        """The directory whose files are the sink's alone, as the pipeline's file names it; None if it has none."""
        return None

    @property
    def output_file(self) -> str | None:
        """The file, or with parts in braces the files, that it writes lines to, as the pipeline's file names it."""
        return None

    @property
    def output_url(self) -> str | None:
        """The place in an object store whose objects are the sink's alone; None if it has none."""
        return None

    @property
    def batch_records_max(self) -> int:
        """Records of a batch of its delivery. What a sink takes slowly should be some seconds of work, since a batch is
        brought to its end before a run stops; planning and committing one costs the time of thousands of records."""
        return 200_000

    @property
    def interval_ms(self) -> int:
        """Time between the starts of two batches of its delivery: how long an event may wait for others, in ms."""
        return 2_000

    @property
    def secret_refs(self) -> tuple[tuple[str, KeyRef], ...]:
        """Its credentials: the key of the file that names each, without `_env` or `_file`, and where it is found."""
        return ()


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
    """What must be found at an edge, a sink, `dropped` or `dead` (or `dropped:NAME`, `dead:NAME`)."""

    __test__ = False

    at: str
    line: int
    fields: tuple[tuple[str, str], ...] = ()
    """Column, or path below `attributes`, and the JSON text of the value it must have."""
    condition: str | None = None
    """SQL that must be true of one record there."""
    count: int | None = None
    """Exactly this many records; None: at least one that fits `fields` and `condition`."""


class PipelineTest(msgspec.Struct, frozen=True, kw_only=True):
    """An example in the pipeline's own file."""

    name: str
    line: int
    inputs: tuple[TestInput, ...]
    expect: tuple[TestExpectation, ...]
    in_file: str | msgspec.UnsetType = msgspec.UNSET
    """The included file that it stands in."""


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """SQL to be checked: it must have the type `wants` over exactly these columns. A `pattern` is a Java regular
    expression instead."""

    sql: str
    columns: tuple[Column, ...]
    line: int
    where: str
    wants: Literal["boolean", "any", "pattern", "timestamp", "int"] = "boolean"
    file: str | None = None
    """The file that it stands in, where that is an included one."""


class PlanWarning(msgspec.Struct, frozen=True, kw_only=True):
    """Something that runs but is hardly meant."""

    where: str
    line: int | None
    message: str
    file: str | None = None
    """The file that it is about, where that is an included one."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pipeline. Transforms are in topological order; every input names an edge that exists."""

    name: str
    file: str
    format: int = PLAN_FORMAT
    bootstrap: str | None = None
    checkpoint: str
    """As written in the file, or `./checkpoints/NAME`; relative paths are the runner's to resolve (`paths`)."""
    checkpoint_store: StoreRef | msgspec.UnsetType = msgspec.UNSET
    """The object store that the checkpoint is in."""
    work_dir: str | msgspec.UnsetType = msgspec.UNSET
    """The directory for the files of a checkpoint in an object store, as written in the file."""
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
    def from_json(
        text: str,
        read_transform: Callable[[Mapping[str, Any]], Transform],
        read_sink: Callable[[Mapping[str, Any]], Sink],
    ) -> Plan:
        """Read back what `to_json` wrote; ValueError (msgspec.ValidationError) for anything else or a newer format.

        `read_transform`, `read_sink`: from the plain data of a node, whose key `type` is its tag, to the node.
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
        """Equal for pipelines that do the same to a record: file name, lines, tests and warnings do not count."""
        running = msgspec.structs.replace(self, file="", tests=(), warnings=(), work_dir=msgspec.UNSET)
        tree = _without_lines(msgspec.to_builtins(running))
        return hashlib.sha256(msgspec.json.encode(tree, order="sorted")).hexdigest()[:16]

    def nodes(self) -> Iterator[StreamSource | Transform | Sink]:
        """All nodes in an order in which inputs come first."""
        yield from self.sources
        yield from self.transforms
        yield from self.sinks

    def consumers(self, edge: str) -> tuple[Consumer, ...]:
        """The nodes that read this edge; none means its records are dropped under the edge's name."""
        return tuple(node for node in (*self.transforms, *self.sinks) if edge in node.inputs)

    def mask_labels(self) -> tuple[str, ...]:
        """Labels of all masks, each once: the count columns an event may carry."""
        kernels = (node for node in self.transforms if isinstance(node, KernelTransform))
        return tuple(dict.fromkeys(label for kernel in kernels for label in kernel.mask_labels))

    def miss_labels(self) -> tuple[str, ...]:
        """Names of all transforms that look up tables."""
        kernels = (node for node in self.transforms if isinstance(node, KernelTransform))
        return tuple(dict.fromkeys(label for kernel in kernels for label in kernel.miss_labels))

    def failure_labels(self) -> tuple[str, ...]:
        """Names of all expressions that can fail where kernels run."""
        kernels = (node for node in self.transforms if isinstance(node, KernelTransform))
        return tuple(dict.fromkeys(label for kernel in kernels for label in kernel.failure_labels))

    def table_refs(self) -> tuple[TableRef, ...]:
        """The tables that are read before a batch runs."""
        return tuple(ref for node in self.transforms for ref in node.table_refs)

    def dials(self) -> tuple[Dial, ...]:
        """All that can be changed while it runs."""
        return tuple(dial for node in self.transforms for dial in node.dials)

    def turned(self, values: DialValues) -> Plan:
        """The plan with its dials at these values, by name. Names that it does not have, and values that it does not
        take, change nothing."""
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
        """The secret keys to be found before the plan can run."""
        return tuple(dict.fromkeys(ref for node in self.transforms for ref in node.key_refs))


def _without_lines(tree: object) -> object:
    if isinstance(tree, dict):
        kept = ((key, value) for key, value in tree.items() if not key.endswith("line") and key != "in_file")
        return {key: _without_lines(value) for key, value in kept}
    if isinstance(tree, list | tuple):
        return [_without_lines(value) for value in tree]
    return tree
