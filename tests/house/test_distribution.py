"""What is installed from a wheel is all that is here: a checkout that is installed in place would not notice a gap."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
NOT_INSTALLED = ("README.md",)
"""Files beside the modules that are for readers of the repository alone."""


def files_of_the_package() -> list[Path]:
    found = (path for path in (SOURCE / "logboom").rglob("*") if path.is_file())
    return [path for path in found if "__pycache__" not in path.parts]


def test_every_directory_with_modules_is_a_package() -> None:
    with_modules = {path.parent for path in files_of_the_package() if path.suffix == ".py"}
    assert [str(folder) for folder in sorted(with_modules) if not (folder / "__init__.py").exists()] == []


def test_every_other_file_is_named_as_data_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = project["tool"]["setuptools"]["package-data"]["logboom"]
    others = [path for path in files_of_the_package() if path.suffix != ".py" and path.name not in NOT_INSTALLED]
    relative = [str(path.relative_to(SOURCE / "logboom")) for path in others]
    assert [path for path in relative if not any(fnmatch(path, pattern) for pattern in named)] == []
