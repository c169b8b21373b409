"""Prometheus as a receiver of remote writes, on a free port of 127.0.0.1, with what it had when it is started again."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.server import free_port
from tests.support.waiting import WAIT_S, until


class PrometheusMissingError(Exception):
    """It is not on this machine; the text says how to get it."""


class Prometheus:
    """One server."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("prometheus") is None:
            raise PrometheusMissingError("prometheus is not here: apt-get install prometheus")
        self.port = free_port()
        self._directory = directory
        self._log = directory / "log"
        (directory / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Prometheus:
        try:
            self.start()
        except BaseException:
            self.kill9()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()

    def start(self) -> None:
        command = [
            "prometheus",
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self._is_ready)

    def kill9(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(WAIT_S)
            self._process = None

    def samples(self, query: str) -> dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]:
        """The samples of a selector with a range, `name[1h]`, by the labels of their series: time and value."""
        asked = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=WAIT_S) as answer:
            found: list[dict[str, Any]] = json.loads(answer.read())["data"]["result"]
        return {
            tuple(sorted(one["metric"].items())): [(float(time), float(value)) for time, value in one["values"]]
            for one in found
        }

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-2_000:]
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=WAIT_S):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False
