"""The dials of a running pipeline: their values at the start of a batch.

The position in the control stream and the values are kept in the checkpoint (`dials.json`), so that the next start
continues from there: the stream has the changes of all pipelines of a log, and other records.

Knows the control stream and a plan's dials. Must not know Spark or how a batch is run.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from logboom.pipeline.checkpoint.checked import DamagedError, read_checked, write_checked
from logboom.pipeline.dials.changes import Declared, Dials, Snapshot, declared_record, values_of
from logboom.pipeline.dials.control import ControlStream
from logboom.pipeline.edge.streams import LogUnreachableError, StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.dials import Value, value_text
from logboom.pipeline.plan.nodes import Plan

_READING_MAX_S: Final = 1.0
"""Limit of the time for reading the control stream per batch. If somebody floods the stream, batches are delayed by
this much only, and dial changes take longer."""


class BatchDials:
    """Returns the values of a plan's dials. For a plan without dials it reads nothing.

    `checkpoint`: that of the pipeline; it must exist.
    """

    def __init__(self, plan: Plan, admin: StreamAdmin, checkpoint: Path, notify: Callable[[str], None]) -> None:
        self._dials = plan.dials()
        self._kept = checkpoint / "dials.json"
        self._control = ControlStream(admin, plan.name, [dial.name for dial in self._dials], notify)
        self._pipeline = plan.name
        self._notify = notify
        self._complaints: frozenset[str] = frozenset()
        self._last: dict[str, Value] = {}
        self._is_open = False

    def declare(self) -> None:
        """Create the control stream and publish the pipeline's dials there, before the first batch."""
        if not self._dials and not self._control.exists():
            return
        self._control.ensure()
        self._control.resume(self._snapshot(), _now_ms())
        declared = Declared(dials=self._dials)
        if self._control.refresh().declared != declared:
            self._control.write(dict([declared_record(self._pipeline, declared)]))
        self._keep()
        self._is_open = True

    def _snapshot(self) -> Snapshot | None:
        """None if nothing was kept or it cannot be read: the stream has it all."""
        with suppress(FileNotFoundError, DamagedError):
            return read_checked(self._kept, Snapshot, "remove it")
        return None

    def _keep(self) -> None:
        write_checked(self._kept, self._control.snapshot(_now_ms()))

    def values(self) -> dict[str, Value]:
        """The current values of dials that were changed. A value that a dial does not accept is reported once."""
        if not self._dials or not self._is_open:
            return {}
        before = self._control.read_to
        in_effect = self._refreshed().in_effect(_now_ms())
        if self._control.read_to != before:
            self._keep()
        values, complaints = values_of(in_effect, self._dials)
        for complaint in complaints:
            if complaint not in self._complaints:
                self._notify(complaint)
        self._complaints = frozenset(complaints)
        self._tell(values)
        return values

    def _refreshed(self) -> Dials:
        """Read the control stream. If it was deleted, it is created again, and all dials have the values of the
        file."""
        try:
            return self._control.refresh(_READING_MAX_S)
        except LogUnreachableError:
            raise
        except PipelineError:
            self.declare()
            return self._control.refresh()

    def _tell(self, values: dict[str, Value]) -> None:
        """Report the dials whose values have changed since the previous batch."""
        for dial in self._dials:
            before, now = self._last.get(dial.name, dial.value), values.get(dial.name, dial.value)
            if before != now:
                self._notify(f"the dial {dial.name} is now {value_text(now)} (before: {value_text(before)})")
        self._last = values


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
