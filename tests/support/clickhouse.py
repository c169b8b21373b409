"""A ClickHouse server of its own on free ports of 127.0.0.1, with a user `shop` who has a password."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from tests.support.server import free_port
from tests.support.waiting import WAIT_S

PASSWORD = "the password of shop"
_CONFIG = """
<{root}>
  <logger><level>warning</level><log>{directory}/log</log><errorlog>{directory}/errors</errorlog></logger>
  <http_port>{http}</http_port><tcp_port>{tcp}</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>{directory}/data/</path><tmp_path>{directory}/tmp/</tmp_path><user_files_path>{directory}/files/</user_files_path>
  <format_schema_path>{directory}/schemas/</format_schema_path>
  <mark_cache_size>1000000</mark_cache_size><max_concurrent_queries>50</max_concurrent_queries>
  <users_config>users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
</{root}>
"""
_USERS = """
<{root}>
  <profiles><default><max_memory_usage>1000000000</max_memory_usage></default></profiles>
  <users>
    <default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default>
    <shop><password>{password}</password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></shop>
  </users>
  <quotas><default/></quotas>
</{root}>
"""


class ClickhouseMissingError(Exception):
    """There is no ClickHouse server on this machine; the text says how to get it."""


class ClickhouseServer:
    """Its files are removed at the end."""

    def __init__(self) -> None:
        program = shutil.which("clickhouse-server") or shutil.which("clickhouse")
        if program is None:
            raise ClickhouseMissingError("no ClickHouse server is here: apt-get install clickhouse-server")
        self._command = [program] if program.endswith("-server") else [program, "server"]
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="logboom-clickhouse-"))
        self._process: subprocess.Popen[bytes] | None = None
        (self._directory / "config.xml").write_text(
            _CONFIG.format(root="yandex", directory=self._directory, http=self.port, tcp=free_port())
        )
        self.set_password(PASSWORD)

    def __enter__(self) -> ClickhouseServer:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()
        shutil.rmtree(self._directory)

    def start(self) -> None:
        with (self._directory / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [*self._command, f"--config-file={self._directory}/config.xml"],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        deadline = time.monotonic() + WAIT_S
        while not self._answers():
            ended = self._process.poll() is not None
            assert not ended, (self._directory / "out").read_text(errors="replace")[-2_000:]
            assert time.monotonic() < deadline, "ClickHouse does not start"
            time.sleep(0.1)

    def kill9(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(WAIT_S)
            self._process = None

    def set_password(self, password: str) -> None:
        """Of the user `shop`; the server sees it at its next start, or some seconds later."""
        (self._directory / "users.xml").write_text(_USERS.format(root="yandex", password=password))

    def query(self, text: str) -> str:
        """What a statement gives, tab-separated."""
        url = f"http://127.0.0.1:{self.port}/"
        try:
            with urllib.request.urlopen(url, data=text.encode(), timeout=WAIT_S) as answer:
                return str(answer.read().decode()).strip()
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode(errors="replace")) from error

    def _answers(self) -> bool:
        try:
            return self.query("SELECT 1") == "1"
        except OSError:
            return False
