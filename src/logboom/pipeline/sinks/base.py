"""The base of all sinks: the keys that they share, and the parts that a sink's module registers.

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
    """Names of the sink's inputs; `*` matches any characters."""

    on_failure: Literal["dead_letter", "retry"] | None = None
    """What happens to a batch that cannot be delivered: dead letters (default) after `attempts`, or retries forever."""

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
    """Collects the problems with the keys of one sink in a pipeline's file."""

    def problem(self, key: str, message: str) -> None:
        """An error: the pipeline cannot run with this key."""
        ...

    def warning(self, key: str, message: str) -> None:
        """A warning: the pipeline runs, but the key is probably a mistake."""
        ...

    def unknown(self, key: str, what: str, word: str, known: Sequence[str]) -> None:
        """An error: the key names a thing (`what`) that does not exist. The message suggests the nearest of `known`."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """A record of an edge's stream that the sink refuses for good; it goes to the dead letters."""

    stream: str
    partition: int
    offset: int
    value: bytes
    reason: str
    is_event: bool = False
    """Whether the sink's server refuses the event. False if the record's value is not an event at all."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of one batch of a delivery."""

    sink: str
    batch: int
    rows: int = 0
    repeats: int = 0
    dead: int = 0
    failures: int = 0
    error: str | None = None
    """Why the last attempt failed; None if it did not."""


class PartlyDeliveredError(PipelineError):
    """An attempt at a batch failed after a part of the batch was delivered; the next attempt skips that part."""

    def __init__(self, reason: str, *, rows: int = 0, repeats: int = 0, dead: int = 0) -> None:
        super().__init__(reason)
        self.rows = rows
        self.repeats = repeats
        self.dead = dead


class SinkWriter(Protocol):
    """An open sink. All calls come from the thread of its delivery."""

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        """Write the records of a batch (topic, partition, offset, key, value). Any exception means: retry.

        :raises PartlyDeliveredError: a part was delivered; `left` has the undelivered rest.
        """
        ...

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """The records of a batch that no attempt has delivered. If the batch is given up, they become dead letters."""
        ...

    def idle(self) -> None:
        """Called between batches, for short maintenance tasks."""
        ...

    def finish(self) -> None:
        """Called once after the last batch of a run that ends by itself."""
        ...


class BaseWriter:
    """A writer without maintenance between batches, which delivers a batch either completely or not at all."""

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """Return all records of the batch."""
        return rows

    def idle(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class RefusedLetters(Protocol):
    """Writes records that a sink refuses to its dead letters. It is pickled and called on executors, too."""

    def __call__(self, refused: Sequence[Refused]) -> None:
        """Return when the dead letters are committed."""
        ...


def durable_already() -> None:
    """Used when a checkpoint is on a local disk: there, a durably written file needs nothing more."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What an open sink may use of its run."""

    resolve: Callable[[str], Path]
    """Make a path of the pipeline's file absolute; relative paths are relative to that file."""
    checkpoint: Path
    """Directory of the delivery's own checkpoint."""
    notify: Callable[[str], None]
    """Print one line to the terminal."""
    write_dead_letters: RefusedLetters
    """Write records to the sink's dead letters. Returns when they are committed. For use on the driver."""
    letters: RefusedLetters
    """The same for executors."""
    secret: Callable[[KeyRef], str]
    """The text of a credential, read again at each call, so that the next attempt uses a renewed one."""
    save: Callable[[], None] = durable_already
    """Make the files of the delivery's checkpoint durable, if the checkpoint is not on a local disk only. Called by the
    delivery's thread before a step that must be known after a crash. Not needed after each batch."""
    streams: Mapping[str, str] = field(default_factory=dict)
    """Id by name of the streams that the sink reads. A stream that was deleted and created again has another id."""


@dataclass(frozen=True, slots=True)
class SinkType(Generic[Model, Node]):
    """One kind of sink; its module registers it under the name `SINK`."""

    name: str
    """The value of the key `type`."""
    model: type[Model]
    """The keys that it takes."""
    node: type[Node]
    """The class of its node in the plan. The node's tag is `name`, by which a pinned plan is decoded."""
    compile: Callable[[Model, CommonFields, SinkReport], Node | None]
    """Makes the node of a sink in a pipeline's file; None after reporting a problem that prevents that."""
    open: Callable[[Node, SinkContext], SinkWriter]
    """Opens the sink for a run. Called on the driver, once for each delivery."""
    connect: Callable[[Node, SinkContext], None] | None = None
    """Checks once whether the server would accept events, without writing any; raises an error if not. None: `check`
    has nothing more to try."""
    read_back: ReadBack[Node] | None = None
    """How the sink's content is read back for `compare`; None if that is not possible."""
