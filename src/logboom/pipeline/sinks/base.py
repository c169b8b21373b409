"""What every kind of sink is made of: the keys it shares with all others, and the parts it registers.

Knows plans and settings. Must not know any particular sink, nor Spark but for the type of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypedDict, TypeVar

from pydantic import Field

from logboom.base.settings import Settings, Texts
from logboom.pipeline.plan.nodes import Sink

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


class SinkWriter(Protocol):
    """An open sink. All calls come from the thread of its delivery."""

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        """Writes the records of a batch (topic, partition, offset, key, value); any exception means: try again."""
        ...

    def idle(self) -> None:
        """Called between batches, for short maintenance."""
        ...

    def finish(self) -> None:
        """Called once behind the last batch of a run that ends by itself."""
        ...


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What an open sink may use of the run it belongs to."""

    resolve: Callable[[str], Path]
    """Makes a path of the pipeline's file absolute: relative ones are relative to the file."""
    checkpoint: Path
    """Directory of the delivery's own checkpoint."""
    notify: Callable[[str], None]
    """Shows the person one line."""
    write_dead_letters: Callable[[Sequence[Refused]], None]
    """Writes records that are no events to the sink's dead letters; returns when they are committed."""


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
