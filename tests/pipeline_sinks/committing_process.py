"""Delivers one batch to `bigquery` in a process of its own, which may be killed: `python -m ... JOB`.

JOB is a file of JSON: the sink's keys, its credential, a directory for the checkpoint, and the batch. Dead letters are
lines of the file `letters`. With `dies` the process kills itself in front of that step of the driver.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
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


def main(job: dict[str, Any]) -> None:
    """Delivers."""
    writer = open_writer(job["keys"], job["secret"], Path(job["directory"]))
    if job["dies"] is not None:
        setattr(*STEPS[job["dies"]], _die)
    deliver(writer, batch_of(job["count"], job["parts"], job["poison"]))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_bytes()))
