"""Delivers one batch to `bigquery` in a process of its own, which may be killed.

Dead letters are lines of the file `letters`. The process is forked off one that has loaded all of this already, which
is most of what a new interpreter would do. That one has called nothing of gRPC, whose threads a fork would lose.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from tests.pipeline_sinks.harness import event, rows, sink_of

from logboom.pipeline.sinks.base import Delivered, PartlyDeliveredError, Refused, SinkContext, SinkWriter
from logboom.pipeline.sinks.bigquery.commits import Commits
from logboom.pipeline.sinks.bigquery.delivery import CommittingWriter
from logboom.pipeline.sinks.registry import type_of

STEPS: Final[dict[str, tuple[type, str]]] = {
    "commit_is_named": (Commits, "begin"),
    "delivery_is_noted": (CommittingWriter, "_note"),
    "commit_is_made": (Commits, "made"),
    "commit_is_forgotten": (Commits, "forget"),
}
"""What comes behind the kill."""
_LOADED_LATE: Final = (
    "grpc",
    "pandas",  # pyarrow looks for its types in what becomes an array
    "cryptography.hazmat.primitives.serialization",
    "logboom.pipeline.sinks.bigquery.target",
    "logboom.pipeline.sinks.http.client",
    "logboom.pipeline.transforms.parse",
)
"""What a delivery imports when it gets there."""


@dataclass(frozen=True)
class FileOfLetters:
    """Dead letters as lines, which outlive the process."""

    path: Path

    def __call__(self, refused: Sequence[Refused]) -> None:
        with self.path.open("ab") as file:
            file.writelines(one.value + b"\n" for one in refused)
            os.fsync(file.fileno())


def open_writer(keys: str, secret: str, directory: Path) -> SinkWriter:
    """The sink as a run opens it."""
    letters = FileOfLetters(directory / "letters")
    sink = sink_of(keys)
    writer: SinkWriter = type_of(sink).open(
        sink,
        SinkContext(
            resolve=lambda path: directory / path,
            checkpoint=directory / "checkpoint",
            notify=print,
            write_dead_letters=letters,
            letters=letters,
            secret=lambda ref: secret,
        ),
    )
    return writer


def batch_of(count: int, parts: int, poison: Sequence[int] = ()) -> Any:
    """Events in so many tasks, some of which the server refuses."""
    events = [event(number, **({"body": "poison"} if number in poison else {})) for number in range(count)]
    size = count // parts
    return rows(*(events[at : at + size] for at in range(0, count, size)))


def deliver(writer: SinkWriter, batch: Any, number: int = 0, attempts: int = 8) -> list[Delivered]:
    """Attempts at a batch until it is delivered; what each came to."""
    outcomes = []
    for _ in range(attempts):
        try:
            outcomes.append(writer.deliver(batch, number))
        except PartlyDeliveredError as error:
            outcomes.append(Delivered("out", number, error.rows, error.repeats, error.dead, error=str(error)))
        else:
            return outcomes
    raise AssertionError(f"not delivered in {attempts} attempts: {outcomes}")


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Job:
    """What is delivered where."""

    keys: str
    """Of the sink."""

    secret: str
    """Its credential."""

    directory: Path
    """Has the checkpoint and the letters."""

    dies: str | None
    """The step of the driver in front of which the process kills itself."""

    count: int
    parts: int
    poison: Sequence[int]


def router(job: Job) -> BaseProcess:
    """The process, which is yet to be started."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__, *_LOADED_LATE])
    return server.Process(target=_run, args=(job,))


def _run(job: Job) -> None:
    writer = open_writer(job.keys, job.secret, job.directory)
    if job.dies is not None:
        setattr(*STEPS[job.dies], _die)
    deliver(writer, batch_of(job.count, job.parts, job.poison))
