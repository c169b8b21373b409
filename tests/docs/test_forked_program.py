"""What stands in for `logboom` where a shell runs the commands of a page behaves as the program does."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.forked_program import ForkedProgram
from tests.support.server import free_port
from tests.support.waiting import WAIT_S


@pytest.fixture
def program(tmp_path: Path) -> Iterator[str]:
    with ForkedProgram(tmp_path / "venv") as made:
        yield str(made.directory / "bin" / "logboom")


def test_arguments_files_directory_and_exit_code_are_the_commands(program: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("broker: {data_dri: x}\n")
    done = subprocess.run(
        [program, "config", "check", "a.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "a.yaml:1" in done.stderr
    said = subprocess.run(
        f"{program} --version | cat", shell=True, capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert said.stdout.startswith("logboom ")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_reaches_the_command(program: str, tmp_path: Path, number: signal.Signals, code: int) -> None:
    listen = f"127.0.0.1:{free_port()}"
    command = [program, "serve", "--json", "--data", str(tmp_path / "data"), "--kafka", listen, "--http", "null"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as serving:
        assert serving.stdout is not None
        assert b"kafka" in serving.stdout.readline()
        os.kill(serving.pid, number)
        assert serving.wait(WAIT_S) == code
        assert serving.stdout.read() == b"", "the pipe ends with the command, not before"
