"""The classes of `pipeline check` come from an archive from the second time on; a bad one does no harm."""

from pathlib import Path

import pytest
from tests.pipeline.support import needs_java

from logboom.pipeline.config import sqlcheck
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, Expression

pytestmark = [pytest.mark.spark, needs_java]

ASKED = [Expression(sql="severty_number >= 17", columns=EVENT_COLUMNS, line=1, where="x")]


def _check() -> None:
    (found,) = sqlcheck.check_expressions(ASKED)
    assert found == "unknown column 'severty_number' (did you mean 'severity_number'?)"


def test_an_archive_is_written_once_and_a_damaged_one_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlcheck, "cache_dir", lambda: tmp_path / "cache" / "jars")
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
    monkeypatch.setattr(sqlcheck, "cache_dir", lambda: tmp_path / "file" / "cache" / "jars")
    _check()
