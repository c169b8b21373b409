"""Large files that are removed: the name goes at once, the room in pieces, and whoever reads them notices nothing."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from threading import current_thread

import pytest
from tests.support.compaction import clean, pairs_of, put
from tests.support.logs import open_log
from tests.support.waiting import until

from logboom.base.units import MIB
from logboom.host import OsDisk, reclaim
from logboom.storage import LogConfig

LARGE_BYTES = 9 * MIB
CONTENT = b"what a reader reads"


def large(path: Path) -> Path:
    path.write_bytes(CONTENT)
    os.truncate(path, LARGE_BYTES)
    with path.open("r+b") as file:
        file.seek(-len(CONTENT), os.SEEK_END)
        file.write(CONTENT)
    return path


def is_open(path: Path) -> bool:
    """Whether this process has the file open, under that name or after its removal."""
    targets = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return any(target.startswith(str(path)) for target in targets)


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every length that a removed file was cut to."""
    found: list[int] = []
    cut = os.ftruncate

    def watched(fd: int, length: int) -> None:
        if current_thread().name == "reclaim":
            found.append(length)
        cut(fd, length)

    monkeypatch.setattr(os, "ftruncate", watched)
    return found


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Every answer to whether a removed file is read by others."""
    found: list[bool] = []
    look = reclaim._is_read

    def watched(fd: int) -> bool:
        found.append(look(fd))
        return found[-1]

    monkeypatch.setattr(reclaim, "_is_read", watched)
    return found


def test_the_room_of_a_large_file_is_given_back_in_pieces(tmp_path: Path, lengths: list[int]) -> None:
    path = large(tmp_path / "a")
    disk = OsDisk(tmp_path)
    disk.unlink("a")
    assert not disk.exists("a")
    until(lambda: not is_open(path))
    assert lengths == [7 * MIB, 5 * MIB, 3 * MIB, MIB]
    with pytest.raises(FileNotFoundError):
        disk.unlink("a")


def test_the_room_of_a_large_file_that_another_one_replaces_is_given_back_in_pieces(
    tmp_path: Path, lengths: list[int]
) -> None:
    path = large(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"new")
    OsDisk(tmp_path).rename("b", "a")
    assert path.read_bytes() == b"new"
    until(lambda: not is_open(path))
    assert len(lengths) == 4


def test_a_small_file_is_removed_as_a_whole(tmp_path: Path, lengths: list[int]) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(MIB))
    OsDisk(tmp_path).unlink("a")
    assert not is_open(path)
    assert not lengths


def test_a_tree_is_removed_file_by_file(tmp_path: Path, lengths: list[int]) -> None:
    (tmp_path / "tree/below").mkdir(parents=True)
    paths = [large(tmp_path / "tree/a"), large(tmp_path / "tree/below/b")]
    (tmp_path / "tree/small").write_bytes(b"x")
    OsDisk(tmp_path).remove_tree("tree")
    assert not (tmp_path / "tree").exists()
    until(lambda: not any(map(is_open, paths)))
    assert len(lengths) == 8


def test_who_has_it_open_reads_all_of_it(tmp_path: Path, lengths: list[int], looks: list[bool]) -> None:
    path = large(tmp_path / "a")
    disk = OsDisk(tmp_path)
    reader = disk.open("a")
    disk.unlink("a")
    until(lambda: len(looks) > 1)
    assert not lengths
    assert reader.read(0, len(CONTENT)) == reader.read(LARGE_BYTES - len(CONTENT), MIB) == CONTENT
    reader.close()
    until(lambda: not is_open(path))
    assert lengths


def test_who_has_it_open_in_another_process_reads_all_of_it(
    tmp_path: Path, lengths: list[int], looks: list[bool]
) -> None:
    path = large(tmp_path / "a")
    code = "import sys; file = open(sys.argv[1], 'rb'); print(flush=True); input(); print(len(file.read()))"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        OsDisk(tmp_path).unlink("a")
        until(lambda: len(looks) > 1)
        assert not lengths
        assert int(reader.communicate("\n")[0]) == LARGE_BYTES
    until(lambda: not is_open(path))
    assert lengths


def test_the_content_of_another_name_stays(tmp_path: Path, lengths: list[int]) -> None:
    """As a backup by hard links has it."""
    path = large(tmp_path / "a")
    os.link(path, tmp_path / "backup")
    OsDisk(tmp_path).unlink("a")
    until(lambda: not is_open(path))
    assert not lengths
    assert (tmp_path / "backup").stat().st_size == LARGE_BYTES


def test_a_read_of_a_segment_that_a_compaction_replaced_goes_on(
    tmp_path: Path, lengths: list[int], looks: list[bool]
) -> None:
    log = open_log(OsDisk(tmp_path), LogConfig(segment_bytes=32 * MIB, preallocate_bytes=0))
    for number in range(100):
        put(log, (f"key {number % 10}", "v" * 100_000))
    log.roll()
    put(log, ("active", "1"))
    segment = log.segments[0]
    path, reader, size_bytes = tmp_path / segment.path, segment.file.handle, segment.size_bytes
    assert size_bytes > 9 * MIB
    before = reader.read(0, size_bytes)
    assert clean(log).records_removed == 90
    until(lambda: len(looks) > 1)
    assert reader.read(0, size_bytes) == before
    assert not lengths
    del reader
    until(lambda: not is_open(Path(f"{path} (deleted)")))
    assert lengths
    assert len(pairs_of(log)) == 11


@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.EACCES])
def test_where_readers_cannot_be_known_it_is_removed_as_a_whole(
    tmp_path: Path, lengths: list[int], monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def refused(fd: int, command: int, argument: int = 0) -> int:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(fcntl, "fcntl", refused)
    path = large(tmp_path / "a")
    OsDisk(tmp_path).unlink("a")
    until(lambda: not is_open(path))
    assert not lengths


def test_a_file_that_is_read_for_long_is_left_to_its_last_reader(
    tmp_path: Path, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaim, "_READERS_END_WITHIN_S", 0)
    path = large(tmp_path / "a")
    disk = OsDisk(tmp_path)
    reader = path.open("rb")
    removed = len(os.listdir("/proc/self/fd"))
    disk.unlink("a")
    until(lambda: len(os.listdir("/proc/self/fd")) == removed)
    assert len(reader.read()) == LARGE_BYTES
    assert not lengths
    reader.close()


def test_more_files_than_may_be_open_are_removed_as_a_whole(
    tmp_path: Path, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaim, "_FILES_MAX", 0)
    path = large(tmp_path / "a")
    OsDisk(tmp_path).unlink("a")
    assert not is_open(path)
    assert not path.exists()
    assert not lengths


def test_a_file_that_cannot_be_removed_is_closed_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    path = large(tmp_path / "a")
    disk = OsDisk(tmp_path)
    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(PermissionError):
        disk.unlink("a")
    assert not is_open(path)
    assert path.stat().st_size == LARGE_BYTES
