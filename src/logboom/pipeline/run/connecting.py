"""Checks the connection of every sink of a plan, without a Spark session and without writing: `pipeline check
--connect`.

Knows the plan and the sink interface. Must not know how a sink checks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from logboom.pipeline.plan.nodes import Plan, Sink
from logboom.pipeline.plan.paths import checkpoint_of, resolved
from logboom.pipeline.sinks.base import Refused, SinkContext
from logboom.pipeline.sinks.bulk.secrets import read_secret
from logboom.pipeline.sinks.registry import type_of


def try_sinks(
    plan: Plan, environ: Mapping[str, str], trying: Callable[[Sink], None] = lambda sink: None
) -> Iterator[tuple[Sink, str]]:
    """The sinks that would not accept events now, with the reasons, one after the other: their libraries cannot be
    imported by several threads at once. `trying` is called before each."""
    checkpoint = checkpoint_of(plan)
    for sink in plan.sinks:
        connect = type_of(sink).connect
        if connect is None:
            continue
        trying(sink)
        context = SinkContext(
            resolve=partial(resolved, plan),
            checkpoint=checkpoint / "deliveries" / sink.name,
            notify=_say_nothing,
            write_dead_letters=_write_none,
            letters=_write_none,
            secret=partial(read_secret, environ=environ, directory=Path(plan.file).parent),
        )
        try:
            connect(sink, context)
        except Exception as error:  # noqa: BLE001 - sinks raise many types, and the other sinks must be checked
            yield sink, str(error) or type(error).__name__


def _say_nothing(text: str) -> None:
    """Ignored: there is no run."""


def _write_none(refused: Sequence[Refused]) -> None:
    """Ignored: nothing is delivered."""
