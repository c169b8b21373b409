"""`logboom pipeline dial`: see and turn the dials of a pipeline, while it runs or before."""

import getpass
import os
import secrets
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.cli.common import AsJson, fail, note, print_json, print_table
from logboom.cli.moments import span_ms
from logboom.cli.pipeline_common import Where, bootstrap_of, plan_of

dial = typer.Typer(no_args_is_help=True, help="Rates, limits and switches of a pipeline, turned while it runs.")

Pipeline = Annotated[
    str, typer.Argument(metavar="PIPELINE", show_default=False, help="Name of a pipeline that has run, or its file.")
]
Dial = Annotated[str, typer.Argument(metavar="DIAL", show_default=False, help="Name of the dial; `dial list` has all.")]
For = Annotated[
    str | None,
    typer.Option(
        "--for", metavar="TIME", help="How long, such as 30m; then the old value returns. Default: until changed."
    ),
]
Why = Annotated[str | None, typer.Option("--why", metavar="TEXT", help="The reason, for the history.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who changes it; default: USER@HOST.")]


@dial.command("set")
def set_dial(
    pipeline: Pipeline,
    name: Dial,
    value: Annotated[str, typer.Argument(metavar="VALUE", show_default=False, help="A number, or on or off.")],
    for_time: For = None,
    why: Why = None,
    by: By = None,
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Turn a dial: it holds from the next batch on, for as long as --for says."""
    opened = _Opened(pipeline, bootstrap)
    found = opened.dial(name)
    try:
        wanted = found.read(value)
    except ValueError as error:
        takes = "" if found.range_text() in str(error) else f" ({name} takes {found.range_text()})"
        fail(f"{name} {value}: {error}{takes}; nothing was changed")
    _turn(opened, name, wanted, _expiry(for_time), why, by, as_json=as_json)


@dial.command("reset")
def reset(
    pipeline: Pipeline,
    name: Dial,
    why: Why = None,
    by: By = None,
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Turn a dial back to what the pipeline's file says."""
    opened = _Opened(pipeline, bootstrap)
    opened.dial(name)
    _turn(opened, name, None, None, why, by, as_json=as_json)


@dial.command("list")
def list_dials(pipeline: Pipeline, bootstrap: Where = None, as_json: AsJson = False) -> None:
    """Show where every dial stands, what the file says, and what it takes."""
    opened = _Opened(pipeline, bootstrap)
    in_effect = opened.dials.in_effect(_now_ms())
    shown = [_shown(found, in_effect.get(found.name)) for found in opened.declared.values()]
    if as_json:
        for one in shown:
            print_json(one)
        return
    rows = [
        (
            one["dial"],
            _text(one["value"]),
            _text(one["default"]),
            one["takes"],
            one["until"],
            one["by"],
            one["why"],
        )
        for one in shown
    ]
    print_table(("dial", "stands at", "in the file", "takes", "until", "by", "why"), rows)


@dial.command("history")
def history(
    pipeline: Pipeline,
    name: Annotated[str | None, typer.Argument(metavar="[DIAL]", show_default=False, help="Only this dial.")] = None,
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show who turned which dial, when, why and for how long, oldest first; the last hundred changes of each."""
    opened = _Opened(pipeline, bootstrap)
    if name is not None:
        opened.dial(name)
    shown = [
        {
            "dial": change.dial,
            "value": change.value,
            "at": _time(change.at_ms),
            "until": _time(change.expires_ms),
            "by": change.by,
            "why": change.why,
        }
        for change in opened.dials.history(name)
    ]
    if as_json:
        for one in shown:
            print_json(one)
        return
    rows = [(one["at"], one["dial"], _text(one["value"]), one["until"], one["by"], one["why"]) for one in shown]
    print_table(("at", "dial", "value", "until", "by", "why"), rows)


class _Opened:
    """The dials of one pipeline: those of its file, or those that it had when it last started."""

    def __init__(self, pipeline: str, bootstrap: str | None) -> None:
        from logboom.pipeline.dials.control import ControlStream
        from logboom.pipeline.edge.streams import StreamAdmin

        plan = _plan(pipeline)
        self.pipeline = pipeline if plan is None else plan.name
        where = bootstrap_of(plan, bootstrap)
        admin = StreamAdmin(where)
        if plan is None:
            self.declared: dict[str, Any] = _declared(admin, pipeline, where)
        else:
            self.declared = {found.name: found for found in plan.dials()}
        self.control = ControlStream(admin, self.pipeline, list(self.declared), note)
        self.control.ensure()
        self.dials = self.control.refresh()

    def dial(self, name: str) -> Any:
        """One dial; ends the command where there is none of this name."""
        from logboom.pipeline.findings import hint

        if name not in self.declared:
            fail(f"the pipeline {self.pipeline} has no dial {name!r} ({hint(name, list(self.declared))})")
        return self.declared[name]


def _declared(admin: Any, pipeline: str, where: str) -> dict[str, Any]:
    """The dials that a pipeline had when it last started; ends the command where it never has."""
    from logboom.pipeline.dials.control import ControlStream

    control = ControlStream(admin, pipeline, (), _pass_over)
    declared = control.refresh().declared if control.exists() else None
    if declared is None:
        fail(f"no pipeline {pipeline!r} has run on {where}; name its file instead, or another broker with --bootstrap")
    return declared.named()


def _pass_over(_: str) -> None:
    """What is wrong with records is told when they are read for the dials that are known then."""


def _plan(pipeline: str) -> Any:
    """The plan of a file; None where a name was given."""
    file = Path(pipeline)
    if not file.is_file():
        if file.suffix in (".yaml", ".yml"):
            fail(f"cannot read {pipeline}: there is no such file")
        return None
    return plan_of(file)


def _turn(
    opened: _Opened,
    name: str,
    value: Any,
    expires_ms: int | None,
    why: str | None,
    by: str | None,
    *,
    as_json: bool,
) -> None:
    from logboom.pipeline.dials.changes import Change, change_record

    change = Change(dial=name, value=value, by=by or _user(), why=why, at_ms=_now_ms(), expires_ms=expires_ms)
    key, record = change_record(opened.pipeline, change, secrets.randbits(32))
    opened.control.write({key: record, **dict.fromkeys(opened.dials.to_forget(name))})
    found = opened.declared[name]
    if as_json:
        in_effect = opened.control.refresh().in_effect(_now_ms())
        print_json(_shown(found, in_effect.get(name)))
        return
    until = "" if expires_ms is None else f" until {_time(expires_ms)}"
    stands = _text(found.value if value is None else value)
    typer.echo(f"{opened.pipeline}: {name} stands at {stands}{until}, from the next batch on")


def _shown(found: Any, change: Any) -> dict[str, Any]:
    holds = change is not None and found.problem(change.value) is None
    return {
        "dial": found.name,
        "value": change.value if holds else found.value,
        "default": found.value,
        "takes": found.range_text(),
        "until": _time(change.expires_ms) if holds else None,
        "by": change.by if holds else None,
        "why": change.why if holds else None,
    }


def _expiry(for_time: str | None) -> int | None:
    if for_time is None:
        return None
    length_ms = span_ms("--for", for_time)
    if length_ms <= 0:
        fail(f"--for {for_time}: should be longer than nothing")
    return _now_ms() + length_ms


def _text(value: Any) -> str:
    from logboom.pipeline.plan.dials import value_text

    return "as the file" if value is None else value_text(value)


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="seconds")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _user() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
