"""What every kind of sink is made of: the keys it shares with all others, and the parts it registers.

Sinks that send events to a server in requests build on `logboom.pipeline.sinks.bulk`.

Knows plans and settings. Must not know any particular sink, nor Spark but for the type of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypedDict, TypeVar

from pydantic import Field

from logboom.base.settings import Settings, Texts
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import KeyRef, Sink
from logboom.pipeline.sinks.read_back import ReadBack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Model = TypeVar("Model", bound="SinkModel")
Node = TypeVar("Node", bound=Sink)


class SinkModel(Settings):
    """The keys that every sink has in a pipeline's file."""

    inputs: Texts
    """Names of what it takes; `*` stands for any characters."""

    on_failure: Literal["dead_letter", "retry"] | None = None
    """What becomes of a batch that cannot be delivered: dead letters (default) after `attempts`, or tried for ever."""

    attempts: int | None = Field(default=None, ge=1, le=1_000)
    """How often a batch is tried before it becomes dead letters, or before a run with `--once` gives up; default 8."""


class CommonFields(TypedDict):
    """The fields of a `Sink` that do not depend on its kind."""

    name: str
    line: int
    inputs: tuple[str, ...]
    on_failure: Literal["dead_letter", "retry"]
    attempts: int


class SinkReport(Protocol):
    """Collects what is wrong with the keys of one sink in a pipeline's file."""

    def problem(self, key: str, message: str) -> None:
        """Something about this key keeps the pipeline from running."""
        ...

    def warning(self, key: str, message: str) -> None:
        """Something about this key runs, but is hardly meant."""
        ...

    def unknown(self, key: str, what: str, word: str, known: Sequence[str]) -> None:
        """The key names a thing (`what`) that does not exist; the message suggests the nearest of `known`."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """A record of an edge's stream that the sink can never take: it hands it to the dead letters."""

    stream: str
    partition: int
    offset: int
    value: bytes
    reason: str
    is_event: bool = False
    """Whether the value is an event that the sink's own server refuses, and not something that is none."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of one batch of a delivery."""

    sink: str
    batch: int
    rows: int = 0
    repeats: int = 0
    dead: int = 0
    failures: int = 0
    error: str | None = None
    """Why the last attempt failed, where one did."""


class PartlyDeliveredError(PipelineError):
    """An attempt at a batch failed, but part of the batch was taken, which the next attempt leaves out."""

    def __init__(self, reason: str, *, rows: int = 0, repeats: int = 0, dead: int = 0) -> None:
        super().__init__(reason)
        self.rows = rows
        self.repeats = repeats
        self.dead = dead


class SinkWriter(Protocol):
    """An open sink. All calls come from the thread of its delivery."""

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        """Writes the records of a batch (topic, partition, offset, key, value); any exception means: try again.

        :raises PartlyDeliveredError: what this attempt has done already counts, and `left` says what it has not.
        """
        ...

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """The records of a batch that the attempts at it have not delivered: what dies when it is given up."""
        ...

    def idle(self) -> None:
        """Called between batches, for short maintenance."""
        ...

    def finish(self) -> None:
        """Called once behind the last batch of a run that ends by itself."""
        ...


class BaseWriter:
    """A writer that has nothing to do between batches, and knows a batch as delivered or not, as a whole."""

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """All of them."""
        return rows

    def idle(self) -> None:
        """Nothing to tidy."""

    def finish(self) -> None:
        """Nothing to finish."""


class RefusedLetters(Protocol):
    """Writes records that a sink refuses to its dead letters. It travels to executors, and is called there too."""

    def __call__(self, refused: Sequence[Refused]) -> None:
        """Returns when they are committed."""
        ...


def durable_already() -> None:
    """Where a checkpoint is kept on a disk, nothing is left to do behind a file that was written durably."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What an open sink may use of the run it belongs to."""

    resolve: Callable[[str], Path]
    """Makes a path of the pipeline's file absolute: relative ones are relative to the file."""
    checkpoint: Path
    """Directory of the delivery's own checkpoint."""
    notify: Callable[[str], None]
    """Shows the person one line."""
    write_dead_letters: RefusedLetters
    """Writes records to the sink's dead letters; returns when they are committed. To be called on the driver."""
    letters: RefusedLetters
    """The same for executors."""
    secret: Callable[[KeyRef], str]
    """The text of a credential, read again at each call: one that was renewed is taken at the next attempt."""
    save: Callable[[], None] = durable_already
    """Makes what is in the checkpoint of the delivery durable where it is not kept on this disk alone; to be called by
    the delivery's thread before a step that has to be known after a crash. Behind each batch that needs no call."""
    streams: Mapping[str, str] = field(default_factory=dict)
    """Id by name of the streams that the sink reads: one that was deleted and made again has another."""


@dataclass(frozen=True, slots=True)
class SinkType(Generic[Model, Node]):
    """One kind of sink, as its module registers it under the name `SINK`."""

    name: str
    """The value of the key `type`."""
    model: type[Model]
    """The keys that it takes."""
    node: type[Node]
    """Its node in the plan; its tag is `name`, which a pinned plan is read back by."""
    compile: Callable[[Model, CommonFields, SinkReport], Node | None]
    """The node of a sink in a pipeline's file, or None once a problem was reported that leaves no node to make."""
    open: Callable[[Node, SinkContext], SinkWriter]
    """Opens the sink for a run; called on the driver, once for each delivery."""
    connect: Callable[[Node, SinkContext], None] | None = None
    """Tries once whether the sink would take events, and writes none; raises what is wrong. None: there is nothing to
    try that `check` has not looked at."""
    read_back: ReadBack[Node] | None = None
    """How what it holds is read back for `compare`; None if nothing there can be asked."""
