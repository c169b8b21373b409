"""A server that nobody here wrote, as a process of its own on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.server import free_port
from tests.support.waiting import WAIT_S, until


class ForeignServer(ABC):
    """Runs within a `with` block, and may be killed and started again on the same port, with what it had on disk."""

    def __init__(self, directory: Path) -> None:
        """`directory` has its log, and what else it keeps."""
        self.port = free_port()
        self._directory = directory
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill9()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()

    def start(self) -> None:
        """Returns when it can be used."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                env=os.environ | self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._is_up, "the server starts")

    def kill9(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(WAIT_S)
            self._process = None

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """What starts it."""

    def _environment(self) -> Mapping[str, str]:
        """What it needs beside the environment of the tests."""
        return {}

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether it can be used."""

    def _answers(self, path: str) -> bool:
        """Whether a page of it can be had."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=WAIT_S):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-2_000:]
        return self._is_ready()
