"""Asks a running pipeline to load its edited file, and returns its answer. Knows plans and two small files.

`logboom pipeline reload` writes `reload.request` to the checkpoint, which the run checks twice a second, and waits for
`reload.answer` with the same id. For a request by signal there is no file; the answer is only shown by the run.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from logboom.base.errors import LogboomError
from logboom.pipeline.checkpoint.files import is_locked, write_durably
from logboom.pipeline.checkpoint.keeping import LOCK, where_kept
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.paths import checkpoint_of
from logboom.pipeline.run.carry_over import check_state_carries_over, still_given_up

_REQUEST: Final = "reload.request"
_ANSWER: Final = "reload.answer"
_POLL_S: Final = 0.1

Recompile = Callable[[], Plan]
"""Compiles the current file; LogboomError with all its problems."""


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request."""

    id: str
    drop_state: tuple[str, ...] = ()
    """Transforms whose state may be dropped."""


class ReloadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request."""

    id: str
    problem: str | None
    """Why the pipeline continues unchanged; None if it continues with the edited file."""
    message: str


class Reloading:
    """The run's side."""

    def __init__(self, checkpoint: Path, recompile: Recompile | None, notify: Callable[[str], None]) -> None:
        """`recompile`: None for a run that cannot load another file."""
        self._request = checkpoint / _REQUEST
        self._answer = checkpoint / _ANSWER
        self._recompile = recompile
        self._notify = notify
        self._is_asked = False
        self._id: str | None = None
        self._asked_to_drop: tuple[str, ...] = ()
        self._given_up: tuple[str, ...] = ()
        """State dropped by earlier requests, for which no batch has written new state yet."""

    @property
    def dropped(self) -> tuple[str, ...]:
        """Transforms whose state is dropped, by the last request or an earlier one."""
        return (*self._given_up, *self._asked_to_drop)

    def open(self) -> None:
        """Remove the files of an earlier run."""
        self._request.unlink(missing_ok=True)

    def ask(self) -> None:
        """Request a reload. May be called from a signal handler."""
        self._is_asked = True

    def changed_plan(self, running: Plan) -> Plan | None:
        """The new plan, if a reload was requested and is possible. The caller must then call `accept` or `refuse`."""
        if self._recompile is None or not self._is_due():
            return None
        try:
            plan = self._recompile()
        except LogboomError as error:
            self.refuse(str(error))
            return None
        self._given_up = still_given_up(self._request.parent, running, self._given_up)
        problem = _not_reloadable(running, plan) or self._lost_state(plan)
        if problem is not None:
            self.refuse(problem)
            return None
        if plan.content_hash() == running.content_hash():
            self._asked_to_drop = ()
            self._tell(None, f"{plan.file} has no changes for the running pipeline")
            return None
        return plan

    def _lost_state(self, plan: Plan) -> str | None:
        try:
            check_state_carries_over(self._request.parent, plan, self.dropped)
        except PipelineError as error:
            return str(error)
        return None

    def accept(self, plan: Plan) -> None:
        """The pipeline continues with this plan."""
        self._given_up, self._asked_to_drop = self.dropped, ()
        self._tell(None, f"continues with the edited {plan.file}")

    def refuse(self, problem: str) -> None:
        """The pipeline continues unchanged, also with state that earlier requests dropped."""
        self._asked_to_drop = ()
        self._tell(problem, f"continues unchanged: {problem}")

    def _is_due(self) -> bool:
        asked, self._is_asked = self._is_asked, False
        if not asked and not self._request.exists():
            return False
        self._id, self._asked_to_drop = None, ()
        with contextlib.suppress(FileNotFoundError):
            text = self._request.read_bytes()
            self._request.unlink()
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # an old request that nobody waits for
                request = msgspec.json.decode(text, type=_Request)
                self._id, self._asked_to_drop = request.id, request.drop_state
        return True

    def _tell(self, problem: str | None, message: str) -> None:
        self._notify(f"reload: {message}")
        if self._id is not None:
            answer = ReloadResult(id=self._id, problem=problem, message=message)
            write_durably(self._answer, msgspec.json.encode(answer))


def _not_reloadable(running: Plan, plan: Plan) -> str | None:
    """The parts of a plan that cannot change in a running pipeline."""
    for what, before, now in (
        ("name", running.name, plan.name),
        ("checkpoint", where_kept(running), where_kept(plan)),
        ("working directory of the checkpoint", str(checkpoint_of(running)), str(checkpoint_of(plan))),
        ("bootstrap", running.bootstrap, plan.bootstrap),
    ):
        if before != now:
            return f"the {what} is {now} in the file and {before} in the run: stop the pipeline and start it again"
    return None


def ask_running(checkpoint: Path, timeout_s: float, drop_state: Sequence[str] = ()) -> ReloadResult:
    """Ask the run with this checkpoint to load its file again, and wait; PipelineError if there is no run.
    `drop_state`: transforms whose state may be dropped."""
    request, answer = checkpoint / _REQUEST, checkpoint / _ANSWER
    if not is_locked(checkpoint / LOCK):
        raise PipelineError(
            "the pipeline is not running on this machine: its next start loads the edited file. If it runs on "
            "another machine, use this command or SIGHUP there"
        )
    name = secrets.token_hex(8)
    write_durably(request, msgspec.json.encode(_Request(id=name, drop_state=tuple(drop_state))))
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            found = msgspec.json.decode(answer.read_bytes(), type=ReloadResult)
            if found.id == name:
                return found
        time.sleep(_POLL_S)
    request.unlink(missing_ok=True)
    raise PipelineError(
        f"the run did not answer within {timeout_s:g} s; a run with --once does not reload, and others reload "
        "between two batches"
    )
