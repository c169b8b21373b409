"""`make demo` does what the README says, on the shop and on a directory of log files.

Its commands are forked off a process that has loaded Logboom, and its routers share JVMs with those of the pages. The
README's page (tests/docs/test_pages.py) runs them as they are installed.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.nats.servers import program as nats_server
from tests.support.forked_program import ForkedProgram
from tests.support.spark_jvms import SparkJvms

pytestmark = [pytest.mark.spark]

ROOT = Path(__file__).parent.parent.parent
SHARED_LOGS = ROOT.parent / "shared" / "logs"
_DEMO_MAX_S = 1_100
"""Below what a whole test may take (`timeout` in pyproject.toml)."""


@pytest.fixture(autouse=True)
def _java() -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not here: apt-get install openjdk-17-jre-headless")


def demo(directory: Path, jvms: SparkJvms, *arguments: str) -> str:
    with ForkedProgram(directory / "venv") as program:
        done = subprocess.run(
            [str(program.directory / "bin" / "python"), str(ROOT / "examples" / "demo.py"), *arguments],
            cwd=directory,
            env=jvms.environment,
            capture_output=True,
            text=True,
            timeout=_DEMO_MAX_S,
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def records_in(output: str) -> int:
    """The left side of the balance, which must hold."""
    found = re.search(r"records in ([\d,]+) .*\(balanced", output)
    assert found is not None, output[-3000:]
    return int(found[1].replace(",", ""))


def test_the_shop(tmp_path: Path, spark_jvms: SparkJvms) -> None:
    output = demo(tmp_path, spark_jvms, "--requests", "300")
    assert records_in(output) > 900
    assert "4111 1111" not in output, "a card number was shown"
    assert "retried 4 dead letters" in output
    assert "demo: few_healthy is 2 until " in output
    assert re.search(r"in the stream: \d+ that stand for 2 each, \d+ that stand for 10 each", output)
    assert "stock  warn  three teapots left" in output.lower()
    if nats_server() is not None:
        told = re.search(r"(\d+) of (\d+) events have their log lines", output)
        assert told is not None
        assert told[1] == told[2]
        assert int(told[1]) > 50
    for way_out in (
        "archive of all",
        "errors (stream)",
        "access (Parquet)",
        "orders: events",
        "health checks",
        "masked card",
    ):
        assert way_out in output
    assert list((tmp_path / "demo-out" / "archive").rglob("*.parquet"))


def test_a_directory_of_log_files(tmp_path: Path, spark_jvms: SparkJvms) -> None:
    if not SHARED_LOGS.is_dir():
        pytest.skip("the real log files are not beside this checkout")
    output = demo(tmp_path, spark_jvms, "--logs", str(SHARED_LOGS))
    lines = sum(len(file.read_bytes().splitlines()) for file in SHARED_LOGS.glob("*.log"))
    assert records_in(output) == lines
    assert "dead 0 (balanced" in output
