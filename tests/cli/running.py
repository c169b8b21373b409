"""Runs `logboom` as a person or a script would: in a process of its own."""

import json
import os
from dataclasses import dataclass
from typing import Any

from tests.support.commands import run_logboom
from tests.support.waiting import WAIT_S


@dataclass(frozen=True)
class Ran:
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Standard output as lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def logboom(*arguments: str, bootstrap: str | None = None, stdin: str | bytes = b"", **environment: str) -> Ran:
    """Run a command to its end."""
    if bootstrap is not None:
        environment["LOGBOOM_BOOTSTRAP"] = bootstrap
    done = run_logboom(
        arguments,
        stdin=stdin.encode() if isinstance(stdin, str) else stdin,
        timeout_s=WAIT_S,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **environment},
    )
    ran = Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in ran.err, ran.err
    return ran


def ok(*arguments: str, bootstrap: str | None = None, stdin: str | bytes = b"") -> Ran:
    """Run a command that has to end well."""
    ran = logboom(*arguments, bootstrap=bootstrap, stdin=stdin)
    assert ran.code == 0, ran
    return ran


def refused(*arguments: str, bootstrap: str | None = None, stdin: str | bytes = b"") -> str:
    """Run a command that has to end with an error; what it says."""
    ran = logboom(*arguments, bootstrap=bootstrap, stdin=stdin)
    assert ran.code == 1, ran
    assert ran.err.startswith("logboom: ") or "\nlogboom: " in ran.err, ran
    return ran.err
