"""`logboom pipeline dial`: show and change the dials of a pipeline, also while it runs."""

import getpass
import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.cli.common import AsJson, fail, note, print_json, print_table
from logboom.cli.moments import span_ms
from logboom.cli.pipeline_common import Where, bootstrap_of, plan_of

dial = typer.Typer(
    no_args_is_help=True, help="Rates, limits and switches of a pipeline that can be changed while it runs."
)

Pipeline = Annotated[
    str, typer.Argument(metavar="PIPELINE", show_default=False, help="Name of a pipeline that has run, or its file.")
]
AnyPipeline = Annotated[
    str | None,
    typer.Argument(
        metavar="[PIPELINE]",
        show_default=False,
        help="Name of a pipeline that has run, or its file. Default: all pipelines of this log.",
    ),
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
    """Set a dial: the value applies from the next batch on, for as long as --for says."""
    opened = _Opened(pipeline, bootstrap)
    found = opened.dial(name)
    try:
        wanted = found.read(value)
    except ValueError as error:
        takes = "" if found.range_text() in str(error) else f" ({name} accepts {found.range_text()})"
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
    """Set a dial back to its value in the pipeline's file."""
    opened = _Opened(pipeline, bootstrap)
    opened.dial(name)
    _turn(opened, name, None, None, why, by, as_json=as_json)


@dial.command("list")
def list_dials(pipeline: AnyPipeline = None, bootstrap: Where = None, as_json: AsJson = False) -> None:
    """Show the value of each dial, its default from the file, and the values that it accepts."""
    shown = []
    for name, declared, dials in _asked_for(pipeline, bootstrap):
        in_effect = dials.in_effect(_now_ms())
        shown += [_shown(name, found, in_effect.get(found.name)) for found in declared.values()]
    if as_json:
        for one in shown:
            print_json(one)
        return
    rows = [
        (
            one["pipeline"],
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
    _print(("pipeline", "dial", "value", "default", "accepts", "until", "by", "why"), rows, pipeline)


@dial.command("history")
def history(
    pipeline: AnyPipeline = None,
    name: Annotated[str | None, typer.Argument(metavar="DIAL", show_default=False, help="Only this dial.")] = None,
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show who changed which dial, when, why and for how long, oldest first; the last hundred changes of each."""
    changes = [(of, change) for of, _, dials in _asked_for(pipeline, bootstrap, name) for change in dials.history(name)]
    shown = [
        {
            "pipeline": of,
            "dial": change.dial,
            "value": change.value,
            "at": _time(change.at_ms),
            "until": _time(change.expires_ms),
            "by": change.by,
            "why": change.why,
        }
        for of, change in sorted(changes, key=lambda one: one[1].at_ms)
    ]
    if as_json:
        for one in shown:
            print_json(one)
        return
    rows = [
        (one["at"], one["pipeline"], one["dial"], _text(one["value"]), one["until"], one["by"], one["why"])
        for one in shown
    ]
    _print(("at", "pipeline", "dial", "value", "until", "by", "why"), rows, pipeline)


def _asked_for(
    pipeline: str | None, bootstrap: str | None, dial_name: str | None = None
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Name, dials and changes of the pipeline that was named, or of all that this log knows."""
    from logboom.pipeline.dials.control import every_pipeline
    from logboom.pipeline.edge.streams import StreamAdmin

    if pipeline is not None:
        opened = _Opened(pipeline, bootstrap)
        if dial_name is not None:
            opened.dial(dial_name)
        yield opened.pipeline, opened.declared, opened.dials
        return
    where = bootstrap_of(None, bootstrap)
    every = every_pipeline(StreamAdmin(where), note)
    if not every:
        note(f"no pipeline with dials has run on {where}; name the file of one, or another broker with --bootstrap")
    for name, (declared, dials) in every.items():
        yield name, declared.named(), dials


def _print(headers: tuple[str, ...], rows: Sequence[Sequence[object]], pipeline: str | None) -> None:
    """A table, with the pipelines' names if the command did not name one."""
    at = headers.index("pipeline")
    kept = [column for column in range(len(headers)) if pipeline is None or column != at]
    if pipeline is not None or rows:
        print_table([headers[column] for column in kept], [[row[column] for column in kept] for row in rows])


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
    from logboom.pipeline.dials.changes import Change, Declared, change_record, declared_record

    change = Change(dial=name, value=value, by=by or _user(), why=why, at_ms=_now_ms(), expires_ms=expires_ms)
    key, record = change_record(opened.pipeline, change, secrets.randbits(32))
    records = {key: record, **dict.fromkeys(opened.dials.to_forget(name))}
    if opened.dials.declared is None:  # the pipeline has never run: without its list no other command would find it
        records |= [declared_record(opened.pipeline, Declared(dials=tuple(opened.declared.values())))]
    opened.control.write(records)
    found = opened.declared[name]
    if as_json:
        in_effect = opened.control.refresh().in_effect(_now_ms())
        print_json(_shown(opened.pipeline, found, in_effect.get(name)))
        return
    until = "" if expires_ms is None else f" until {_time(expires_ms)}"
    shown = _text(found.value if value is None else value)
    typer.echo(f"{opened.pipeline}: {name} is {shown}{until}, from the next batch on")


def _shown(pipeline: str, found: Any, change: Any) -> dict[str, Any]:
    holds = change is not None and found.problem(change.value) is None
    return {
        "pipeline": pipeline,
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

    return "the default" if value is None else value_text(value)


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
