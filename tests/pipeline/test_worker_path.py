"""Python workers load pyspark from where it is installed, and another Spark's where there is none."""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import needs_java

from logboom.pipeline.run.worker_path import forget_packages_of_archives, without_archives


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory of packages with pyspark and py4j, as pip makes it."""
    site = tmp_path / "site-packages"
    for name in ("pyspark", "py4j"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").touch()
    (site / "pyspark" / "python" / "lib").mkdir(parents=True)
    return site


def _archives(package: Path) -> list[str]:
    return [str(package / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]


def test_the_installed_packages_take_the_place_of_their_archives(site: Path) -> None:
    jar = str(site / "pyspark" / "jars" / "spark-core_2.13-4.2.1.jar")
    path = ["", *_archives(site / "pyspark"), jar, "/usr/lib/python311.zip", str(site)]
    assert without_archives(path) == ["", "/usr/lib/python311.zip", str(site)]


def test_a_link_to_the_directory_is_that_directory(site: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(site)
    assert without_archives([*_archives(link / "pyspark"), str(site)]) == [str(site)]


def test_archives_of_another_spark_stay_and_their_jar_does_not(site: Path, tmp_path: Path) -> None:
    other = _archives(tmp_path / "opt" / "spark")
    assert without_archives([*other, "/opt/spark/jars/spark-core_2.13-4.2.1.jar", str(site)]) == [*other, str(site)]


def test_archives_stay_where_a_worker_could_not_import_what_they_hold(site: Path) -> None:
    archives = _archives(site / "pyspark")
    assert without_archives(archives) == archives
    (site / "py4j" / "__init__.py").unlink()
    assert without_archives([*archives, str(site)]) == [*archives, str(site)]


def test_packages_of_an_archive_are_found_again_after_they_were_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("__init__", "before", "behind"):
            file.writestr(f"in_an_archive/{name}.py", "")
    monkeypatch.syspath_prepend(str(archive))
    import in_an_archive.before  # type: ignore[import-not-found]

    def known() -> list[str]:
        return [place for place in sys.path_importer_cache if place.startswith(str(archive))]

    try:
        assert known() == [str(archive), str(archive / "in_an_archive")]
        forget_packages_of_archives()
        assert known() == [str(archive)]
        import in_an_archive.behind  # type: ignore[import-not-found]  # noqa: F401
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "in_an_archive"]:
            del sys.modules[name]


@pytest.mark.spark
@needs_java
def test_workers_of_a_session_have_no_archive_on_their_path(spark: Any) -> None:
    def seen(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        import py4j
        import pyarrow as pa
        import pyspark

        for _ in batches:
            archives = [entry for entry in sys.path if entry.endswith((".jar", "pyspark.zip", "-src.zip"))]
            yield pa.RecordBatch.from_pydict({"seen": [*archives, str(pyspark.__file__), str(py4j.__file__)]})

    import py4j
    import pyspark

    found = [row.seen for row in spark.range(1).mapInArrow(seen, "seen string").collect()]
    assert found == [pyspark.__file__, py4j.__file__]
