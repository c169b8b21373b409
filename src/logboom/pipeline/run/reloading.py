"""How a running pipeline is asked to take its edited file, and how it answers. Knows plans and two small files.

`logboom pipeline reload` puts `reload.request` into the checkpoint, which the run looks for twice a second, and waits
for `reload.answer` with the same id. A signal asks without a file, and gets its answer on the run's display alone.
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
"""The plan of the file as it is now; LogboomError with all that is wrong with it."""


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked."""

    id: str
    drop_state: tuple[str, ...] = ()
    """Transforms whose state may be given up."""


class ReloadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request."""

    id: str
    problem: str | None
    """Why the pipeline goes on as it was; None if it goes on with the edited file."""
    message: str


class Reloading:
    """The side of the run."""

    def __init__(self, checkpoint: Path, recompile: Recompile | None, notify: Callable[[str], None]) -> None:
        """`recompile`: None for a run that cannot take another file."""
        self._request = checkpoint / _REQUEST
        self._answer = checkpoint / _ANSWER
        self._recompile = recompile
        self._notify = notify
        self._is_asked = False
        self._id: str | None = None
        self._asked_to_drop: tuple[str, ...] = ()
        self._given_up: tuple[str, ...] = ()
        """What earlier requests gave up of which no batch has remembered anything else yet."""

    @property
    def dropped(self) -> tuple[str, ...]:
        """Transforms whose state is given up, by the last request or by one before it."""
        return (*self._given_up, *self._asked_to_drop)

    def open(self) -> None:
        """Forgets what an earlier run was asked."""
        self._request.unlink(missing_ok=True)

    def ask(self) -> None:
        """Asks for the file to be read again; may be called from a signal handler."""
        self._is_asked = True

    def changed_plan(self, running: Plan) -> Plan | None:
        """The plan to go on with, where one was asked for and can be taken; `accept` or `refuse` has to follow."""
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
        """The pipeline goes on with this plan."""
        self._given_up, self._asked_to_drop = self.dropped, ()
        self._tell(None, f"goes on with {plan.file} as it is now")

    def refuse(self, problem: str) -> None:
        """The pipeline goes on as it was, and so does what was given up before."""
        self._asked_to_drop = ()
        self._tell(problem, f"goes on as it was: {problem}")

    def _is_due(self) -> bool:
        asked, self._is_asked = self._is_asked, False
        if not asked and not self._request.exists():
            return False
        self._id, self._asked_to_drop = None, ()
        with contextlib.suppress(FileNotFoundError):
            text = self._request.read_bytes()
            self._request.unlink()
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # one that nobody waits for an answer to
                request = msgspec.json.decode(text, type=_Request)
                self._id, self._asked_to_drop = request.id, request.drop_state
        return True

    def _tell(self, problem: str | None, message: str) -> None:
        self._notify(f"reload: {message}")
        if self._id is not None:
            answer = ReloadResult(id=self._id, problem=problem, message=message)
            write_durably(self._answer, msgspec.json.encode(answer))


def _not_reloadable(running: Plan, plan: Plan) -> str | None:
    """What of a plan a running pipeline cannot take up."""
    for what, before, now in (
        ("name", running.name, plan.name),
        ("checkpoint", where_kept(running), where_kept(plan)),
        ("working directory of the checkpoint", str(checkpoint_of(running)), str(checkpoint_of(plan))),
        ("bootstrap", running.bootstrap, plan.bootstrap),
    ):
        if before != now:
            return f"the {what} is {now} in the file and {before} in the run: stop it and start it again"
    return None


def ask_running(checkpoint: Path, timeout_s: float, drop_state: Sequence[str] = ()) -> ReloadResult:
    """Asks the run of a checkpoint to read its file again, and waits; PipelineError if none does. `drop_state`:
    transforms whose state it may give up."""
    request, answer = checkpoint / _REQUEST, checkpoint / _ANSWER
    if not is_locked(checkpoint / LOCK):
        raise PipelineError(
            "the pipeline is not running on this machine: its next start takes the file as it is then; one that "
            "runs on another takes it there, by the same command or by SIGHUP"
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
        f"the run did not answer within {timeout_s:g} s; one with --once takes no other file, and others do so between "
        "two batches"
    )
