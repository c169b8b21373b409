"""The dials of a running pipeline: which stand where when a batch begins.

What was read of the control stream is kept in the checkpoint (`dials.json`), so that a start reads on from there: the
stream has the changes of all pipelines of a log, and whatever strangers wrote.

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
"""Of a batch, for the control stream: whoever floods it delays batches by no more, and changes of dials instead."""


class BatchDials:
    """Answers where the dials of a plan stand. A plan without dials asks nobody.

    `checkpoint`: the pipeline's, which is there.
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
        """Makes the control stream, and tells there which dials the pipeline has; before the first batch."""
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
        """None if nothing was kept, or nothing that can be read: the stream has it all."""
        with suppress(FileNotFoundError, DamagedError):
            return read_checked(self._kept, Snapshot, "remove it")
        return None

    def _keep(self) -> None:
        write_checked(self._kept, self._control.snapshot(_now_ms()))

    def values(self) -> dict[str, Value]:
        """The dials that were turned, and where they stand now. A change that a dial does not take is named once."""
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
        """What the control stream says now. One that was deleted is recreated: all dials stand as the file says."""
        try:
            return self._control.refresh(_READING_MAX_S)
        except LogUnreachableError:
            raise
        except PipelineError:
            self.declare()
            return self._control.refresh()

    def _tell(self, values: dict[str, Value]) -> None:
        """Says which dials stand elsewhere than in the batch before."""
        for dial in self._dials:
            before, now = self._last.get(dial.name, dial.value), values.get(dial.name, dial.value)
            if before != now:
                self._notify(f"the dial {dial.name} stands at {value_text(now)} (before: {value_text(before)})")
        self._last = values


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
