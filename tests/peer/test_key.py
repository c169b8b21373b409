"""The cluster's key: made by a command, kept where others cannot read it, refused with what to do where it is unfit."""

import os
import stat
from pathlib import Path

import pytest
import typer
from pydantic import ValidationError
from typer.testing import CliRunner

from logboom.base.settings import SettingsError, load
from logboom.cli import cluster_key
from logboom.cli.common import CommandError
from logboom.peer import ClusterKeyError, PeerConfig, format_cluster_key, read_cluster_keys


def made(*arguments: str) -> str:
    """What the command prints. Raises CommandError."""
    app = typer.Typer()
    app.callback()(lambda: None)
    cluster_key.register(app)
    result = CliRunner().invoke(app, ["key", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def written(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_the_command_makes_a_file_that_its_owner_alone_reads_and_never_the_same_key(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b")]
    before = os.umask(0)
    try:
        for file in files:
            made("--out", str(file))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    keys = [read_cluster_keys(file)[0] for file in files]
    assert keys[0] != keys[1]
    assert {len(key) for key in keys} == {32}


def test_the_command_prints_a_key_that_a_file_may_hold(tmp_path: Path) -> None:
    assert len(read_cluster_keys(written(tmp_path / "key", made()))[0]) == 32


def test_the_command_overwrites_nothing(tmp_path: Path) -> None:
    file = written(tmp_path / "key", "precious")
    with pytest.raises(CommandError, match="is there already"):
        made("--out", str(file))
    assert file.read_text() == "precious"
    with pytest.raises(CommandError, match="No such file or directory"):
        made("--out", str(tmp_path / "nowhere" / "key"))


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o620, 0o666])
def test_a_key_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    file = written(tmp_path / "key", format_cluster_key(bytes(32)), mode)
    with pytest.raises(ClusterKeyError, match=f"chmod 600 {file}"):
        read_cluster_keys(file)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_key_may_be_read_by_its_group(tmp_path: Path, mode: int) -> None:
    file = written(tmp_path / "key", format_cluster_key(bytes(range(32))), mode)
    assert read_cluster_keys(file) == (bytes(range(32)),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "should hold a key of a cluster"),
        ("00" * 31, "has 31 bytes, and at least 32 are needed"),
        ("00" * 5_000, "should hold a key of a cluster, or 4 at most, one a line"),
        (("00" * 32 + "\n") * 5, "should hold a key of a cluster, or 4 at most, one a line"),
        ("00" * 32 + "\n" + "00" * 20, "has 20 bytes"),
        ("secret-words" * 9, "should be hexadecimal digits"),
        (b"\xff\xfe" * 40, "should be hexadecimal digits"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, text: str | bytes, why: str) -> None:
    with pytest.raises(ClusterKeyError, match=why) as refused:
        read_cluster_keys(written(tmp_path / "key", text))
    assert "logboom cluster key" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_file_may_hold_the_next_key_too(tmp_path: Path) -> None:
    file = written(tmp_path / "key", format_cluster_key(bytes(32)) + format_cluster_key(bytes(range(32))))
    assert read_cluster_keys(file) == (bytes(32), bytes(range(32)))


def test_a_missing_key_is_told_with_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(
        ClusterKeyError, match="No such file or directory; make one with `logboom cluster key --out FILE`"
    ):
        read_cluster_keys(tmp_path / "key")


def test_listening_without_a_key_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises((SettingsError, ValidationError), match=r"peer\.listen needs peer\.key_file"):
        load(PeerConfig, {"listen": "127.0.0.1:0"})
    assert load(PeerConfig, {}).listen is None
