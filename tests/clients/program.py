"""A client nobody here wrote, as a process of its own that is killed and started again."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import WAIT_S


class Program:
    """It runs as long as the `with` block. The log of all its lives is the file `log`; its end is printed where the
    block fails."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()
        if error is not None:
            print(f"the log of the program, {self.log}, ends with:\n{self.log.read_text(errors='replace')[-6_000:]}")

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """Its life that was started last."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start it; it may not run already."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)

    def kill9(self) -> None:
        """SIGKILL, where it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)
