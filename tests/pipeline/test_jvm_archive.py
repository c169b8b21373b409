"""The classes of `pipeline check` come from an archive from the second time on; a bad one does no harm."""

from pathlib import Path

import pytest
from tests.pipeline.support import needs_java

from logboom.pipeline.spark import catalyst
from logboom.pipeline.spark.catalyst import open_catalyst

pytestmark = [pytest.mark.spark, needs_java]


def _check() -> None:
    with open_catalyst() as spark:
        assert "upper" in spark.function_names()


def test_an_archive_is_written_once_and_a_damaged_one_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalyst, "cache_dir", lambda: tmp_path / "cache" / "jars")
    _check()
    (archive,) = (tmp_path / "cache").iterdir()
    written = archive.stat().st_mtime_ns
    _check()
    assert [path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()] == [written]
    archive.chmod(0o600)
    archive.write_bytes(b"damaged")
    _check()


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(catalyst, "cache_dir", lambda: tmp_path / "file" / "cache" / "jars")
    _check()
