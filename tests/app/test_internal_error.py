"""A node that ends on an internal error leaves the trace in its log: the sentence on the terminal has none."""

from pathlib import Path

import pytest

from logboom.app import process
from logboom.app.config import NodeConfig
from logboom.base.errors import StorageError


def _run(monkeypatch: pytest.MonkeyPatch, directory: Path, error: Exception) -> None:
    async def live(*_: object) -> None:
        raise error

    monkeypatch.setattr(process, "_live", live)
    config = NodeConfig.model_validate({"broker": {"data_dir": directory}})
    with pytest.raises(type(error)):
        process.run_node(config, lambda _: None)


def test_the_trace_of_an_internal_error_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _run(monkeypatch, tmp_path, AssertionError())
    said = capfd.readouterr().err
    assert "this node ends on an internal error" in said
    assert "in live" in said


def test_an_error_that_is_foreseen_has_no_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _run(monkeypatch, tmp_path, StorageError("the directory is in use"))
    assert "internal error" not in capfd.readouterr().err
