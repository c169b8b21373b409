"""A compiled build says what it is, and does not start where its sources and its modules differ."""

import hashlib
import json
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from logboom.base import build

SOURCE = b"answer = 42\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A compiled package of one module."""
    (tmp_path / "walk.py").write_bytes(SOURCE)
    (tmp_path / f"walk{EXTENSION_SUFFIXES[0]}").touch()
    manifest = {"compiler": "mypyc 1", "sources": {"walk.py": hashlib.sha256(SOURCE).hexdigest()}}
    (tmp_path / build.MANIFEST).write_text(json.dumps(manifest))
    return tmp_path


def test_it_is_plain_python_without_a_manifest(tmp_path: Path) -> None:
    build.check(str(tmp_path))
    assert build.describe(str(tmp_path)) == "plain Python"


def test_a_compiled_build_names_its_compiler(package: Path) -> None:
    build.check(str(package))
    assert build.describe(str(package)) == "compiled by mypyc 1"


def test_a_source_that_was_changed_after_it_was_compiled_is_refused(package: Path) -> None:
    (package / "walk.py").write_bytes(SOURCE + b"# and more\n")
    with pytest.raises(
        build.StaleBuildError, match=r"walk\.py was changed after it was compiled, .* install Logboom again"
    ):
        build.check(str(package))


def test_a_module_that_was_compiled_for_another_python_is_refused(package: Path) -> None:
    (package / f"walk{EXTENSION_SUFFIXES[0]}").rename(package / "walk.cpython-399-x86_64-linux-gnu.so")
    with pytest.raises(build.StaleBuildError, match=r"walk\.py was compiled for another Python"):
        build.check(str(package))
