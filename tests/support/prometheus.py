"""Prometheus as a receiver of remote writes, on a free port of 127.0.0.1, with what it had when it is started again."""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.foreign_server import ForeignServer
from tests.support.waiting import WAIT_S


class PrometheusMissingError(Exception):
    """It is not on this machine; the text says how to get it."""


class Prometheus(ForeignServer):
    """One server."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("prometheus") is None:
            raise PrometheusMissingError("prometheus is not here: apt-get install prometheus")
        super().__init__(directory)
        (directory / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n")

    def samples(self, query: str) -> dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]:
        """The samples of a selector with a range, `name[1h]`, by the labels of their series: time and value."""
        asked = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=WAIT_S) as answer:
            found: list[dict[str, Any]] = json.loads(answer.read())["data"]["result"]
        return {
            tuple(sorted(one["metric"].items())): [(float(time), float(value)) for time, value in one["values"]]
            for one in found
        }

    def _command(self) -> list[str]:
        return [
            "prometheus",
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
        ]

    def _is_ready(self) -> bool:
        return self._answers("/-/ready")
