"""Every command, program and file in the documentation is run as it stands there.

The pages say 127.0.0.1:9092, 127.0.0.1:9644, nats://127.0.0.1:4222 and .venv/bin/logboom; here the broker stands on
free ports and the tests' own interpreter is used. The README's page uses the program and Spark as they are installed.
The others call `logboom` some hundred times, which is forked off a process that has loaded it, and their routers share
JVMs. Nothing else is changed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.docs.blocks import Block, blocks_of
from tests.nats.servers import program
from tests.support.forked_program import ForkedProgram
from tests.support.server import BrokerProcess
from tests.support.spark_jvms import SparkJvms
from tests.support.waiting import WAIT_S

from logboom.pipeline.sinks.registry import sink_types

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/README.md")])
AS_INSTALLED = ROOT / "README.md"
_NATS = "nats://127.0.0.1:4222"


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_block_says_what_it_is(page: Path) -> None:
    nameless = [block.line for block in blocks_of(page) if not block.language]
    assert not nameless, f"{title(page)}: blocks without a language at lines {nameless} (see tests/docs/blocks.py)"


def test_the_tables_of_sinks_name_each_that_there_is() -> None:
    for name, row in (
        ("docs/sinks.md", r"^\| \[`(\w+)`\]\([^)]+\) \| [^|]+\|"),
        ("docs/pipeline.md", r"^\| `(\w+)` \|"),
    ):
        listed = re.findall(row, (ROOT / name).read_text(), re.MULTILINE)
        missing = sink_types().keys() - listed
        assert not missing, f"{name} does not say what these sinks promise or take: {sorted(missing)}"


def commands(page: Path) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language in ("sh", "python")]


def sharing(page: Path) -> list[pytest.MarkDecorator]:
    """Pages that run routers share a worker, and so the JVMs of these."""
    runs_routers = any(re.search(r"logboom pipeline (run|replay)", text) for text in commands(page))
    return [pytest.mark.xdist_group("spark jvms")] if runs_routers and page != AS_INSTALLED else []


RUNNABLE = [pytest.param(page, marks=sharing(page), id=title(page)) for page in PAGES if commands(page)]


@pytest.mark.spark
@pytest.mark.parametrize("page", RUNNABLE)
def test_every_command_works(page: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """`Runner` asserts that each command and program ends with 0."""
    work = tmp_path / "work"
    work.mkdir()
    shutil.copytree(ROOT / "examples", work / "examples")
    shutil.copy(ROOT / "README.md", work)
    jvms: SparkJvms | None = None if page == AS_INSTALLED else request.getfixturevalue("spark_jvms")
    environment = dict(os.environ) if jvms is None else jvms.environment
    with_nats = _NATS in page.read_text()
    if with_nats and program() is None:
        pytest.skip("no nats-server here: apt-get install nats-server")
    given = ["--nats", "embedded", "--set", "nats.embedded_listen=127.0.0.1:0"] if with_nats else []
    with BrokerProcess(tmp_path / "data", *given) as broker, installed(page, work / ".venv"):
        run_page(page, Runner(work, broker, environment))


@contextmanager
def installed(page: Path, place: Path) -> Iterator[None]:
    """A virtual environment with Logboom at `place`."""
    if page == AS_INSTALLED:
        place.symlink_to(sys.prefix)
        yield
    else:
        with ForkedProgram(place):
            yield


class Runner:
    """Runs blocks in one directory against one broker."""

    def __init__(self, work: Path, broker: BrokerProcess, environment: Mapping[str, str]) -> None:
        """`environment`: of the commands."""
        self._work, self._broker = work, broker
        self._environment = {**environment, "LOGBOOM_BOOTSTRAP": broker.kafka}

    def _here(self, text: str) -> str:
        nats = str(self._broker.ready["nats"])
        text = text.replace("127.0.0.1:9092", self._broker.kafka).replace("127.0.0.1:9644", self._broker.http)
        return text.replace(_NATS, nats)

    def write(self, block: Block) -> None:
        assert block.file is not None
        (self._work / block.file).write_text(self._here(block.text))

    def python(self, block: Block) -> None:
        self._finish([sys.executable, "-c", self._here(block.text)], block)

    def shell(self, block: Block) -> None:
        for tool in ("kcat", "curl"):
            if re.search(rf"^(.*\| )?{tool} ", block.text, re.MULTILINE) and shutil.which(tool) is None:
                return
        self._finish(["bash", "-euo", "pipefail", "-c", self._here(block.text)], block)

    def _finish(self, command: list[str], block: Block) -> None:
        done = subprocess.run(
            command, cwd=self._work, env=self._environment, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, f"line {block.line}:\n{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"

    @contextmanager
    def background(self, block: Block) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on: `serve` gets ports of its own, since the page's broker already runs."""
        text = self._here(block.text).replace("logboom serve", "logboom serve --kafka 127.0.0.1:0 --http 127.0.0.1:0")
        output = self._work / f"background-{block.line}.txt"
        with output.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {text}"],
                cwd=self._work,
                env=self._environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )
        try:
            deadline = time.monotonic() + WAIT_S
            while not output.read_text().strip() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            yield process
            assert process.poll() is None, f"line {block.line} ended by itself:\n{output.read_text()[-3000:]}"
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0, f"line {block.line}:\n{output.read_text()[-3000:]}"
        finally:
            process.kill()
            process.wait(WAIT_S)


def run_page(page: Path, runner: Runner) -> None:
    with ExitStack() as running:
        for block in blocks_of(page):
            if block.file is not None:
                runner.write(block)
            elif block.language == "python":
                runner.python(block)
            elif block.language == "sh" and block.background:
                running.enter_context(runner.background(block))
            elif block.language == "sh":
                runner.shell(block)
