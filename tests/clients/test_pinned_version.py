"""A client that is told which Kafka it talks to, instead of asking for the versions of its APIs."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


def test_kafka_python_that_takes_kafka_4_1_for_granted(tmp_path: Path) -> None:
    program = Path(__file__).parent / "python" / "kafka_4_1.py"
    with BrokerProcess(tmp_path) as broker:
        command = [sys.executable, "-W", "ignore", str(program), broker.kafka]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (ended.returncode, ended.stdout) == (0, "[b'0', b'1', b'2'] [3]\n"), ended.stderr[-2000:]
