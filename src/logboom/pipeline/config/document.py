"""The document of a pipeline: its file, the files that it includes, and `${NAME}` in their values.

Knows YAML, files and variables. Must not know what any key means, except for the sections to which an included file may
add. Every value keeps its file and line, so that a problem is reported there.
"""

import errno
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from logboom.base.settings import (
    KeyPath,
    Problem,
    SettingsError,
    Substitute,
    YamlDocument,
    decode_yaml,
    nearest,
    parse_yaml,
)
from logboom.base.units import MIB

SECTIONS: Final = ("patterns", "sources", "transforms", "sinks")
"""Groups of named parts: names are unique over all files."""
FILES_MAX: Final = 100
FILE_BYTES_MAX: Final = 16 * MIB
"""The sections of an included file."""

_VARIABLE: Final = re.compile(r"\$?\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SECRET: Final = re.compile(
    r"password|passwd|secret|token|credential|api_?key|access_?key|authorization", re.IGNORECASE
)
_UNDECODED: Final = re.compile("[\udc80-\udcff]")  # Python decodes such bytes to these
_NO_SECRET: Final = ("_env", "_file", "_name")


def substitution(variables: Mapping[str, str]) -> Substitute:
    """Replaces `${NAME}` and `${NAME:-default}` by the values of variables; `$${NAME}` becomes `${NAME}`.

    As in a shell the default also applies if the variable is empty. ValueError if there is neither a value nor a
    default, if the value is not text, and if the name of the variable or key says that the value is a secret: plans are
    written to the checkpoint.
    """

    def substitute(path: KeyPath, text: str) -> str:
        def value_of(found: re.Match[str]) -> str:
            if found[0].startswith("$$"):
                return found[0][1:]
            key = next((step for step in reversed(path) if isinstance(step, str)), "")
            if _SECRET.search(found[1]) or (_SECRET.search(key) and not key.endswith(_NO_SECRET)):
                raise ValueError(
                    f"${{{found[1]}}} must not hold a secret: values are written into the checkpoint; give the name "
                    "of the variable instead, with a key such as password_env"
                )
            value = variables.get(found[1])
            if value is not None and _UNDECODED.search(value):
                raise ValueError(f"the environment variable {found[1]} has bytes that are not UTF-8")
            if found[2] is not None:
                return value or found[2]
            if value is None:
                close = nearest(found[1], variables)
                advice = f"did you mean {close}? " if close else ""
                raise ValueError(
                    f"the environment variable {found[1]} is not set ({advice}${{{found[1]}:-...}} gives a default)"
                )
            return value

        return _VARIABLE.sub(value_of, text)

    return substitute


def read_document(text: str, file: str, variables: Mapping[str, str] | None = None) -> YamlDocument:
    """The document of a pipeline's file with all included files. SettingsError with every fault of all files.

    `variables`: None if `${NAME}` is not replaced.
    """
    reader = _Reader(file, None if variables is None else substitution(variables))
    return reader.read(text)


class _Reader:
    """Reads a file and then the files that it includes."""

    def __init__(self, file: str, substitute: Substitute | None) -> None:
        self._file = file
        self._substitute = substitute
        self._problems: list[Problem] = []
        self._seen = {Path(file).resolve()}
        self._lines: dict[KeyPath, int] = {}
        self._files: dict[KeyPath, str] = {}

    def read(self, text: str) -> YamlDocument:
        """All of it."""
        try:
            main = parse_yaml(text, self._file, self._substitute)
        except SettingsError as error:
            raise SettingsError(self._file, error.problems) from None
        if not isinstance(main.data, dict) or "include" not in main.data:
            return main
        data = dict(main.data)
        self._lines.update(main.lines)
        for at, path in self._included(main, self._file):
            self._include(data, path, at)
        if self._problems:
            raise SettingsError(self._file, self._problems)
        return YamlDocument(data, self._file, self._lines, self._files)

    def _problem(self, file: str, line: int | None, where: str, message: str) -> None:
        self._problems.append(Problem(where, line, message, None if file == self._file else file))

    def _included(self, document: YamlDocument, file: str) -> Iterator[tuple[tuple[str, int | None], Path]]:
        """The files that a document includes, with the key path of each."""
        given = document.data.get("include")
        for index, name in enumerate([given] if isinstance(given, str) else given if isinstance(given, list) else []):
            line = document.line_of(("include", index) if isinstance(given, list) else ("include",))
            if not isinstance(name, str) or not name.strip() or "\0" in name:
                self._problem(file, line, "include", "should be the name of a file")
                continue
            directory = Path(file).parent
            is_one = "*" not in name or Path(name).is_absolute()
            if not is_one and any("**" in part and part != "**" for part in name.split("/")):
                # From Python 3.13 on, pathlib takes it for a single '*'.
                told = f"{name!r} is not a valid pattern of names: '**' has to be alone between slashes"
                self._problem(file, line, "include", told)
                continue
            found = [directory / name] if is_one else sorted(directory.glob(name))
            if not found:
                self._problem(file, line, "include", f"no file matches {name!r}")
            yield from (((file, line), path) for path in found)

    def _include(self, data: dict[str, Any], path: Path, at: tuple[str, int | None]) -> None:
        """Adds the parts of a file to the document."""
        name = str(path)
        try:
            resolved = _resolved(path)
            if resolved in self._seen:
                self._problem(*at, "include", f"{name} is already included")
                return
            if len(self._seen) == FILES_MAX:
                self._problem(*at, "include", f"includes more than {FILES_MAX} files")
                return
            self._seen.add(resolved)
            part = parse_yaml(decode_yaml(_bytes_of(path), name), name, self._substitute)
        except OSError as error:
            self._problem(*at, "include", f"{name} cannot be read: {error.strerror}")
            return
        except SettingsError as error:
            self._problems += [Problem(each.where, each.line, each.message, name) for each in error.problems]
            return
        if part.data is None:
            return
        if not isinstance(part.data, dict):
            self._problem(name, 1, "", f"should be groups of keys and values: {', '.join((*SECTIONS, 'tests'))}")
            return
        for key, value in part.data.items():
            self._add(data, part, key, value)
        for place, inner in self._included(part, name):
            self._include(data, inner, place)

    def _add(self, data: dict[str, Any], part: YamlDocument, key: str, value: Any) -> None:
        line = part.line_of((key,))
        if key in SECTIONS and isinstance(value, dict):
            section = data.get(key)
            data[key] = section = dict(section) if isinstance(section, dict) else {}
            for name, thing in value.items():
                if name in section:
                    first = f"{self._files.get((key, name), self._file)}:{self._lines.get((key, name))}"
                    self._problem(part.name, part.line_of((key, name)), f"{key}.{name}", f"is already in {first}")
                    continue
                section[name] = thing
                self._place(part, (key, name), (key, name))
        elif key == "tests" and isinstance(value, list):
            tests = data.get(key)
            data[key] = tests = list(tests) if isinstance(tests, list) else []
            for index, test in enumerate(value):
                self._place(part, (key, index), (key, len(tests)))
                tests.append(test)
        elif key in (*SECTIONS, "tests"):
            if value is not None:
                what = "a list" if key == "tests" else "a group of keys and values"
                self._problem(part.name, line, key, f"should be {what}")
        elif key != "include":
            known = ", ".join((*SECTIONS, "tests", "include"))
            self._problem(part.name, line, key, f"must be in the pipeline's own file; an included one may have {known}")

    def _place(self, part: YamlDocument, there: KeyPath, here: KeyPath) -> None:
        """Records the lines and the file of a part that is added to the document."""
        depth = len(there)
        self._files[here] = part.name
        own = part.line_of(there)  # keys merged with `<<` have the line of the merge, which is that of the part
        if own is not None:
            self._lines[here] = own
        for path, line in part.lines.items():
            if path[:depth] == there:
                self._lines[(*here, *path[depth:])] = line


def _resolved(path: Path) -> Path:
    """The path without symbolic links; OSError with the reason if there is no such file."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # a loop of links: RuntimeError up to Python 3.12, OSError from 3.13 on
        if isinstance(error, RuntimeError) or error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link that leads to itself") from None
        raise


def _bytes_of(path: Path) -> bytes:
    """The content of a file; OSError with the reason if it cannot be a part of a pipeline: a pipe, for example, may
    never end."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if status.st_size > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it has more than {FILE_BYTES_MAX // MIB} MiB")
    return path.read_bytes()
