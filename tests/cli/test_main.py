"""The command as a whole: help, versions, typing errors, and errors without tracebacks."""

import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.cli.running import logboom, ok, refused
from tests.support.server import free_port
from tests.support.waiting import WAIT_S
from typer.core import TyperGroup

from logboom.cli import main as command
from logboom.cli.common import made_directory
from logboom.cli.configuring import node_config

COMMANDS = ["serve", "streams", "publish", "tail", "groups", "collect", "pipeline", "config"]


def test_help_lists_every_command() -> None:
    text = ok("--help").out
    assert [command for command in COMMANDS if command not in text] == []


def test_help_loads_no_command() -> None:
    code = """
import sys
from logboom.cli.main import application
try:
    application().main(["--help"])
except SystemExit:
    print([name for name in sys.modules if name.split(".")[0] in ("confluent_kafka", "pyspark", "kio", "uvloop")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout.splitlines()[-1] == "[]"


def test_serve_imports_no_spark() -> None:
    code = "import sys, logboom.cli.serve; print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'pyarrow')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("command", [[each] for each in COMMANDS])
def test_every_command_explains_itself(command: list[str]) -> None:
    assert "Usage: logboom" in ok(*command, "--help").out


def test_version_is_told() -> None:
    assert ok("--version").out.startswith("logboom ")


def test_mistyped_command_names_the_nearest() -> None:
    ran = logboom("stream", "list")
    assert ran.code == 2
    assert "Did you mean 'streams'?" in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ["streams", "list"],
        ["streams", "create", "x"],
        ["publish", "x"],
        ["tail", "x"],
        ["groups", "list"],
        ["groups", "reset", "g", "--to", "earliest"],
    ],
    ids=" ".join,
)
def test_broker_that_is_not_there_is_named_and_what_to_do_said(command: list[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    said = refused(*command, bootstrap=address)
    assert f"no broker answers ({address}: Connection refused)" in said
    assert "logboom serve" in said


def test_address_that_is_none_is_refused() -> None:
    assert "--bootstrap: 'nonsense' is not an address" in refused("streams", "list", "-b", "nonsense")


def test_completion_knows_commands_and_options() -> None:
    environment = {"_LOGBOOM_COMPLETE": "complete_bash", "COMP_WORDS": "logboom str", "COMP_CWORD": "1"}
    assert "streams" in logboom(**environment).out
    environment = {
        "_LOGBOOM_COMPLETE": "complete_bash",
        "COMP_WORDS": "logboom streams create --part",
        "COMP_CWORD": "3",
    }
    assert "--partitions" in logboom(**environment).out


def test_commands_that_draw_nothing_load_nothing_to_draw_with() -> None:
    """Every other command that there is, all in one process."""
    code = (
        "import sys; from logboom.cli.main import _COMMANDS, _DRAWING, _load;"
        "[_load(name) for name in _COMMANDS if name not in _DRAWING];"
        "print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert done.stdout.strip() == "False"


def test_serve_loads_no_library_that_a_broker_has_no_use_for() -> None:
    code = (
        "import sys; from logboom.cli.main import _load; _load('serve');"
        "print([name for name in ('hypothesis', 'rich', 'matplotlib', 'confluent_kafka') if name in sys.modules]);"
        "import hypothesis, rich"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert done.stdout.strip() == "[]"


def test_set_reaches_settings_that_have_a_flag_of_their_own() -> None:
    given = ["kafka.listen=127.0.0.1:19092", "http.listen=127.0.0.1:19644"]
    config = node_config(None, given, {"kafka.listen": None, "http.listen": "127.0.0.1:1"})
    assert (config.kafka.listen, config.http.listen) == ("127.0.0.1:19092", "127.0.0.1:1")


def test_a_directory_for_measurements_is_made(tmp_path: Path) -> None:
    wanted = tmp_path / "not" / "there"
    assert made_directory(wanted) == wanted
    assert wanted.is_dir()
    assert made_directory(wanted) == wanted
    assert made_directory(None) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ImportError("initialization failed\n\nKeyboardInterrupt: "), 130),
        (SystemError("a library has not loaded"), 70),
    ],
)
def test_ctrl_c_that_a_library_turns_into_another_error_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    monkeypatch.setattr(command, "application", Mock(side_effect=error))
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == code
    assert ("this is a bug" in capsys.readouterr().err) == (code == 70)


def test_a_group_of_commands_has_one_description() -> None:
    """`logboom --help` does not load it, and repeats what it says of itself."""
    root = command.application()
    for name, text in command._COMMANDS.items():
        group = root.commands[name].make_context(name, ["--help"], resilient_parsing=True).command
        if isinstance(group, TyperGroup):
            assert group.help == text
