"""`logboom ...` in a process of its own, forked off one that has loaded the program already.

Loading the program takes more CPU time than most commands do, and the tests start hundreds. So each process that runs
tests keeps one template process, which has imported the program and does nothing else. A process that is forked off it
runs `logboom.cli.main.main` with its own arguments, environment, directory and standard files, and ends without tearing
the interpreter down.

The command line from its very start to its very end, `python -m logboom.cli`, is run by tests/app/test_node.py, the
README's page and the router's tests.
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from tests.support.forking import ForkedProcess, Template


class LogboomProcess(ForkedProcess):
    """A running command."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        new_session: bool = False,
    ) -> None:
        super().__init__(
            _template(),
            arguments,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            new_session=new_session,
        )


def run_logboom(
    arguments: Sequence[str],
    *,
    timeout_s: float,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end, as `subprocess.run` does with `capture_output`."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        process = LogboomProcess(arguments, stdin=given, stdout=out, stderr=err, cwd=cwd, env=env)
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["logboom", *arguments], code, out.read(), err.read())


@cache
def _template() -> Template:
    return Template(lambda descriptor: [sys.executable, "-m", "tests.support.template_process", str(descriptor)])
