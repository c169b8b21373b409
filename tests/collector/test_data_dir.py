"""Positions on disk: the old ones or the new ones, never half of them; one collector at a time."""

import os
from pathlib import Path

import pytest

from logboom.base.errors import FormatVersionError
from logboom.collector.data_dir import DataDir, DataDirError, DataDirInUseError
from logboom.collector.fingerprint import Fingerprint
from logboom.collector.tail import Generation, Identity

ODD_PATH = os.fsdecode(b"/var/log/\xff\xc3\xa9.log")
GENERATION = Generation(ODD_PATH, Identity(1, 2**63), Fingerprint(7, 3, "ab", 7, "cd"))


def test_positions_come_back_as_they_were(tmp_path: Path) -> None:
    directory = DataDir.open(tmp_path / "deep" / "state")
    assert directory.load() is None
    directory.save({"app": [GENERATION], "none": []}, {"pipe": 99}, {"pipe": "b1"})
    saved = directory.load()
    assert saved is not None
    [file] = saved.files["app"]
    again = file.generation()
    assert (again.path, again.identity, again.acked) == (ODD_PATH, GENERATION.identity, GENERATION.acked)
    assert (again.id, again.is_durable) == (GENERATION.id, True)
    assert (saved.buffers, saved.buffer_ids) == ({"pipe": 99}, {"pipe": "b1"})
    directory.close()


def test_a_second_collector_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    first = DataDir.open(tmp_path)
    with pytest.raises(DataDirInUseError, match=f"process {os.getpid()}"):
        DataDir.open(tmp_path)
    first.close()
    DataDir.open(tmp_path).close()


def test_a_failed_write_leaves_the_old_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDir.open(tmp_path)
    directory.save({}, {"pipe": 1})

    def fails(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="No space"):
            directory.save({}, {"pipe": 2})
    saved = directory.load()
    assert saved is not None
    assert saved.buffers == {"pipe": 1}
    directory.close()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version":1,"digest":"x","positions":{}}'])
def test_damaged_positions_are_not_believed(tmp_path: Path, damage: bytes) -> None:
    directory = DataDir.open(tmp_path)
    (tmp_path / "positions.json").write_bytes(damage)
    with pytest.raises(DataDirError, match="damaged"):
        directory.load()
    directory.close()


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    directory = DataDir.open(tmp_path)
    (tmp_path / "positions.json").write_bytes(b'{"version":9,"digest":"x","positions":{}}')
    with pytest.raises(FormatVersionError, match="format 9"):
        directory.load()
    directory.close()
