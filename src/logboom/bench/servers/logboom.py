"""Logboom's own broker, started as a user would start it."""

import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from logboom.bench.servers.probe import kafka_answers
from logboom.bench.servers.process import Server, free_port


class LogboomServer(Server):
    """`logboom serve` with the settings given, under names as on its command line."""

    name = "logboom"

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(directory)
        self._settings = dict(settings or {})
        self._http_port = free_port()

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def version(self) -> str:
        return f"{version('logboom')}, Python {sys.version.split()[0]}"

    def settings(self) -> dict[str, object]:
        return dict(self._settings)

    def prepare(self) -> None:
        return

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "logboom.cli", "serve", "--data", str(self.data), "--kafka", self.address]
        command += ["--http", f"127.0.0.1:{self._http_port}"]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return command

    def answers(self) -> bool:
        return kafka_answers(self.port)
