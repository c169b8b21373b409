"""The Python environment for the workers of a Spark cluster, as an archive that is shipped with the pipeline.

Executors import this package and the dependencies of the extra `spark`: `pack` puts only those distributions of a
virtual environment into a tar.gz. A Spark installation has its own copy of pyspark. An archive made by venv-pack or
conda-pack works as well: it has its own interpreter in `bin/python`.

Knows distributions and Spark's settings for archives. Must not know sessions, nor plans.
https://spark.apache.org/docs/latest/api/python/tutorial/python_packaging.html
"""

import io
import json
import os
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, Final

from logboom.pipeline.errors import PipelineError

_DIRECTORY: Final = "environment"
"""Directory of the unpacked archive, relative to the executors' working directory."""
_OF_SPARK: Final = frozenset({"pyspark", "py4j"})
_OWN: Final = "logboom"
_CONTENTS: Final = "logboom-environment.json"
_INTERPRETER: Final = ("bin/python", "./bin/python")
_COMPRESSION: Final = 1  # gzip level: a higher one saves a fifth of the bytes for three times the seconds
_COMPILED: Final = ("__pycache__", ".pyc")


@dataclass(frozen=True, slots=True)
class Packed:
    """Description of an archive's content."""

    distributions: int
    files: int
    size_bytes: int


def pack(target: Path, on_distribution: Callable[[str], None]) -> Packed:
    """Write the archive atomically. `on_distribution` is called with the name, number and total before each
    distribution is packed. PipelineError if a needed distribution is not installed, or the archive cannot be
    written."""
    found = sorted(_needed(), key=lambda one: one.name.lower())
    partial = target.with_name(f".{target.name}.partial")
    files = 0
    try:
        with tarfile.open(partial, "w:gz", compresslevel=_COMPRESSION) as archive:
            _add_contents(archive, found)
            for number, one in enumerate(found, 1):
                on_distribution(f"{one.name} {one.version}, {number} of {len(found)}")
                for source, name in _files(one):
                    archive.add(source, name, recursive=False)
                    files += 1
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise PipelineError(f"{target}: {error.strerror or error}") from error
    return Packed(len(found), files, target.stat().st_size)


def _add_contents(archive: tarfile.TarFile, found: Sequence[Distribution]) -> None:
    """The description is the first member, so that the archive can be recognised by its first bytes."""
    contents = {"python": _version_name(), "packages": {one.name: one.version for one in found}}
    text = json.dumps(contents, indent=1).encode()
    entry = tarfile.TarInfo(_CONTENTS)
    entry.size = len(text)
    archive.addfile(entry, io.BytesIO(text))


def environment_settings(archive: str) -> dict[str, str]:
    """Spark's settings that ship an archive to the executors. PipelineError if a local one cannot be read."""
    settings = {"spark.archives": f"{archive}#{_DIRECTORY}"}
    if _has_interpreter(archive):
        return settings
    return settings | {"spark.executorEnv.PYTHONPATH": _DIRECTORY}


def executor_python(archive: str) -> str:
    """The executors' interpreter with that archive, for their shell: the archive's own, or an installed one of this
    version."""
    return f"./{_DIRECTORY}/bin/python" if _has_interpreter(archive) else _version_name()


def _version_name() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _has_interpreter(archive: str) -> bool:
    if "://" in archive:  # Spark downloads it; assume that `pack` made it, unless PYSPARK_PYTHON is set
        return False
    try:
        with tarfile.open(archive) as opened:
            first = opened.next()
            if first is not None and first.name == _CONTENTS:
                _check_version(archive, opened.extractfile(first))
                return False
            if any(one.name in _INTERPRETER for one in opened):
                return True
            raise ValueError("it was not made by logboom, and has no bin/python")
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = said.partition(":\n")[0]  # a list of what it could have been follows
        raise PipelineError(f"--environment {archive}: {reason}; make one with: logboom pipeline package") from error


def _check_version(archive: str, contents: IO[bytes] | None) -> None:
    python = None if contents is None else json.load(contents).get("python")
    if python != _version_name():
        raise PipelineError(
            f"--environment {archive}: it is for {python}, and this is {_version_name()}: executors must be the same; "
            "make one with: logboom pipeline package"
        )


def _needed() -> list[Distribution]:
    """This distribution, and all installed dependencies of it and its extra `spark`, except Spark's own."""
    from packaging.requirements import Requirement

    found: dict[str, Distribution] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(_OWN, frozenset({"spark"}))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen or name in _OF_SPARK:
            continue
        seen.add((name, extras))
        try:
            one = distribution(name)
        except PackageNotFoundError as error:
            raise PipelineError(f"{name} is not installed here: pip install 'logboom[spark]'") from error
        found[name] = one
        for text in one.requires or ():
            wanted = Requirement(text)
            environments: list[Mapping[str, str]] = [{"extra": extra} for extra in ("", *extras)]
            if wanted.marker is None or any(wanted.marker.evaluate(dict(one)) for one in environments):
                waiting.append((wanted.name.lower(), frozenset(wanted.extras)))
    return list(found.values())


def _files(one: Distribution) -> Iterator[tuple[Path, str]]:
    """Paths of a distribution's files, and their names relative to the import path."""
    is_own = one.name == _OWN  # read once: each access parses the whole metadata
    if is_own:
        yield from _own_files()
    for file in one.files or ():
        path = Path(str(file.locate()))
        name = file.as_posix()
        outside = name.startswith(("..", os.sep)) or name.endswith(".pth")
        if outside or any(word in name for word in _COMPILED) or not path.is_file():
            continue  # programs in bin/, and the path of an editable installation
        if not is_own or not name.startswith(f"{_OWN}/"):
            yield path, name


def _own_files() -> Iterator[tuple[Path, str]]:
    """This package, from where it is imported: an editable installation has its files elsewhere."""
    import logboom

    root = Path(logboom.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.is_file() and not any(word in str(path) for word in _COMPILED):
            yield path, f"{_OWN}/{path.relative_to(root).as_posix()}"
