"""Kafka's command line tools, all in one JVM, whose start takes longer than they do."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Protocol

from tests.support.waiting import WAIT_S

from logboom.bench.servers.kafka import java_command

_OPTIONS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_RUNNER = Path(__file__).with_name("KafkaTools.java")
_END = "end of tool "


class Tool(Protocol):
    """Runs a tool by its class and gives what it prints; `fails` where it has to end with an error."""

    def __call__(self, name: str, *arguments: str, fails: bool = False) -> str: ...


@contextmanager
def tools(bootstrap: str, wait_s: float = WAIT_S) -> Iterator[Tool]:
    """Tools for the cluster at `bootstrap`, for so long. Raises UnavailableError where Kafka's jars cannot be had."""
    command = java_command(str(_RUNNER), options=_OPTIONS)
    jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(name: str, *arguments: str, fails: bool = False) -> str:
        assert jvm.stdin is not None
        assert jvm.stdout is not None
        where = ("--bootstrap-server", bootstrap)
        # kafka-cluster takes it for an option of its subcommands, kafka-metadata-quorum for one of its own.
        words = (*arguments, *where) if name.endswith("ClusterTool") else (*where, *arguments)
        jvm.stdin.write("\t".join((name, *words)) + "\n")
        jvm.stdin.flush()
        lines = list[str]()
        while not lines or not lines[-1].startswith(_END):
            line = jvm.stdout.readline()
            assert line, "the JVM ended: " + "".join(lines)
            lines.append(line)
        said = "".join(lines)
        assert (lines[-1] != f"{_END}0\n") == fails, said
        return said

    watchdog = Timer(wait_s, jvm.kill)
    watchdog.start()
    try:
        yield run
    finally:
        watchdog.cancel()
        jvm.kill()
        jvm.communicate()
