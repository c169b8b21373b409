"""Whose a data directory is, which format it has, and that one broker uses it at a time."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import WAIT_S

from logboom.base.errors import FormatVersionError
from logboom.base.ids import BrokerId
from logboom.broker.disk.data_dir import DataDir, DataDirError
from logboom.host import OsDisk, SystemIds
from logboom.sim.disk import Always, SimDisk
from logboom.storage import FORMAT_VERSION


def opened(path: Path, broker_id: int = 1, cluster_id: str | None = None) -> DataDir:
    return DataDir.open(path, OsDisk(path), broker_id=BrokerId(broker_id), cluster_id=cluster_id, ids=SystemIds())


def test_a_data_directory_is_created_once_and_keeps_its_identity(tmp_path: Path) -> None:
    first = opened(tmp_path / "deep" / "data")
    first.close()
    second = opened(tmp_path / "deep" / "data")
    second.close()
    assert second.identity == first.identity
    assert len(first.identity.cluster_id) == 22
    assert first.identity.directory_id != first.identity.cluster_id


def test_a_given_cluster_id_is_kept(tmp_path: Path) -> None:
    opened(tmp_path, cluster_id="ours").close()
    assert json.loads((tmp_path / "node.json").read_text())["cluster_id"] == "ours"
    opened(tmp_path).close()
    with pytest.raises(DataDirError, match="belongs to cluster ours, not theirs"):
        opened(tmp_path, cluster_id="theirs")


def test_two_brokers_cannot_share_a_data_directory(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(DataDirError, match=r"in use by another broker \(process \d+\)"):
        opened(tmp_path)
    first.close()
    first.close()
    opened(tmp_path).close()


def test_the_lock_holds_between_processes_and_ends_with_them(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from logboom.broker.disk.data_dir import DataDir\n"
        "from logboom.host import OsDisk, SystemIds\n"
        "DataDir.open(Path(sys.argv[1]), OsDisk(sys.argv[1]), broker_id=1, cluster_id=None, ids=SystemIds())\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(DataDirError, match=f"process {holder.pid}"):
            opened(tmp_path)
        holder.kill()
        holder.wait(WAIT_S)
        opened(tmp_path).close()


def test_another_brokers_directory_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(DataDirError, match="belongs to broker 1, not 2"):
        opened(tmp_path, broker_id=2)
    opened(tmp_path).close()  # the refusal gave the lock back


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "format.json").write_text(json.dumps({"format": FORMAT_VERSION + 1}))
    with pytest.raises(FormatVersionError, match=f"format {FORMAT_VERSION + 1}"):
        opened(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "one"}', "{"])
def test_a_garbled_format_file_is_refused(tmp_path: Path, text: str) -> None:
    opened(tmp_path).close()
    (tmp_path / "format.json").write_text(text)
    with pytest.raises(FormatVersionError):
        opened(tmp_path)


def test_a_directory_with_other_things_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(DataDirError, match=r"contains other files \(holiday.jpg\)"):
        opened(tmp_path)
    assert not (tmp_path / "format.json").exists()


def test_a_used_directory_without_its_identity_file_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "node.json").unlink()
    with pytest.raises(DataDirError, match="is missing"):
        opened(tmp_path)


def test_an_interrupted_first_start_is_completed(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "format.json.new").write_text("{")
    with contextlib.closing(opened(tmp_path)) as first:
        assert first.unknown_entries == []
    with contextlib.closing(opened(tmp_path)) as again:
        assert again.identity == first.identity


def test_a_data_directory_uses_the_disk_port_alone() -> None:
    disk, path = SimDisk(), Path("nowhere")

    def open_on(disk: SimDisk) -> DataDir:
        return DataDir.open(path, disk, broker_id=BrokerId(1), cluster_id=None, ids=SystemIds())

    first = open_on(disk)
    with pytest.raises(DataDirError, match="in use by another broker"):
        open_on(disk)
    after = disk.power_cut(Always(False))  # what open made is durable, and the lock ended with the machine
    again = open_on(after)
    assert again.identity == first.identity
    assert again.unknown_entries == []
    after.open("notes.txt", create=True)
    assert again.unknown_entries == ["notes.txt"]
    assert not path.exists()
