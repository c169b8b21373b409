"""The classes of `pipeline check` come from an archive from the second time on; a bad one does no harm."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.pipeline.support import needs_java

from logboom.pipeline.spark import catalyst
from logboom.pipeline.spark.catalyst import CatalystJvm, open_catalyst
from logboom.pipeline.spark.jvm_archive import ClassArchive

pytestmark = [pytest.mark.spark, needs_java]


@pytest.fixture(autouse=True)
def _own_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests share them."""
    monkeypatch.setattr(catalyst, "CatalystJvm", CatalystJvm)


def _start_and_end() -> None:
    """A JVM that loads none of Spark's classes: to write those takes many times as long."""
    jvm = CatalystJvm()
    gateway = jvm.connect()
    try:
        assert gateway.jvm.java.lang.Math.abs(-1) == 1
    finally:
        jvm.close(gateway)


def test_an_archive_is_written_once_and_a_damaged_one_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalyst, "cache_dir", lambda: tmp_path / "cache" / "jars")
    _start_and_end()
    (archive,) = (tmp_path / "cache").iterdir()
    written = archive.stat().st_ino
    _start_and_end()
    assert [path.stat().st_ino for path in (tmp_path / "cache").iterdir()] == [written]
    archive.chmod(0o600)
    archive.write_bytes(b"damaged")
    _start_and_end()


def test_an_unwritable_cache_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(catalyst, "cache_dir", lambda: tmp_path / "file" / "cache" / "jars")
    with open_catalyst() as spark:
        assert "upper" in spark.function_names()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def _written(directory: Path, *, whole: bool, announced: bool) -> ClassArchive:
    """The archive as a JVM leaves it that outlived its process."""
    archive = ClassArchive(directory, "run", sys.executable, ["a.jar"])
    (option,) = (option for option in archive.options if "ArchiveClassesAtExit" in option)
    content = b"\xa8\xab\x0b\xf0 classes" if whole else b"\x00" * 16
    Path(option.partition("=")[2]).write_bytes(content)
    if announced:
        archive.announce()
    return archive


def test_what_a_jvm_wrote_behind_its_process_is_taken_up_at_the_next_start(tmp_path: Path) -> None:
    _written(tmp_path, whole=True, announced=True)
    later = ClassArchive(tmp_path, "run", sys.executable, ["a.jar"])
    later.adopt()
    assert (later.exists, later.is_written) == (True, False)
    assert [path.name for path in tmp_path.iterdir()] == [later.path.name]


@pytest.mark.parametrize(("whole", "announced"), [(False, True), (True, False)])
def test_what_is_not_finished_or_of_no_use_is_left_alone_and_removed_in_the_end(
    whole: bool, announced: bool, tmp_path: Path
) -> None:
    _written(tmp_path, whole=whole, announced=announced)
    later = ClassArchive(tmp_path, "run", sys.executable, ["a.jar"])
    later.adopt()
    assert not later.exists
    assert later.is_written != announced, "while one JVM writes, no other does"
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    later.adopt()
    assert list(tmp_path.iterdir()) == []


def test_archives_that_an_upgrade_left_behind_are_removed(tmp_path: Path) -> None:
    for hours_ago, name in enumerate(("check-kept.jsa", "run-recent.jsa", "run-older.jsa", "run-oldest.jsa"), start=1):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - 3600 * hours_ago,) * 2)
    abandoned = tmp_path / ".run-older.1234.new"
    abandoned.touch()
    os.utime(abandoned, (1, 1))
    _written(tmp_path, whole=True, announced=True)
    archive = ClassArchive(tmp_path, "run", sys.executable, ["a.jar"])
    archive.adopt()
    assert archive.exists
    assert {path.name for path in tmp_path.iterdir()} == {archive.path.name, "run-recent.jsa", "check-kept.jsa"}


def test_a_virtual_environment_behind_a_symbolic_link_uses_the_same_archive(tmp_path: Path) -> None:
    """The JVM compares the class path as text, so every way to one installation has to spell it alike."""
    (tmp_path / "environment").symlink_to(sys.prefix)
    program = (
        "from logboom.pipeline.spark.jars import cache_dir\n"
        "from logboom.pipeline.spark.jvm import spark_jars\n"
        "print(cache_dir(), *spark_jars(), sep=':')"
    )
    said = {
        subprocess.run([root / "bin" / "python", "-c", program], capture_output=True, text=True, check=True).stdout
        for root in (Path(sys.prefix).resolve(), tmp_path / "environment")
    }
    assert len(said) == 1
