"""With LOGBOOM_COMPILE=1 the modules that pyproject.toml names become C extensions of a wheel; else nothing is built.

docs/decisions/0020-compiled-modules.md says why and what such a module must keep to. A checkout is never compiled in
place: Python prefers an extension to the source beside it, so that a changed source would silently not run.
"""

import hashlib
import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
MYPY = "2.4.1"  # also that of requirements/all.lock: another compiler is another program to test
MANIFEST = "compiled.json"


class WithManifest(build_py):
    """Puts into the wheel which sources its extensions were made of; logboom.base.build reads it at start."""

    def run(self) -> None:
        # Extensions of an earlier build would come along, also those of modules that are plain by now.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        manifest = {"compiler": f"mypyc {MYPY}", "sources": DIGESTS}
        (Path(self.build_lib) / "logboom" / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def modules() -> list[str]:
    return project()["tool"]["logboom"]["compiled"]


def extensions() -> list[Extension]:
    import mypyc  # only here: the plain package needs no mypy
    from mypyc.build import mypycify

    paths = [str(Path("src/logboom") / module) for module in modules()]
    found = mypycify(["--config-file", "pyproject.toml", *paths], opt_level="2", debug_level="0", multi_file=True)
    # With a file for each module, mypyc leaves out the headers of what it keeps in files of its own.
    runtime = Path(mypyc.__file__).parent / "lib-rt"
    for extension in found:
        for header in ("bytes_extra_ops.h", "bytearray_extra_ops.h", "str_extra_ops.h"):
            extension.extra_compile_args += ["-include", str(runtime / header)]
    mend_slices(ROOT / "build" / "bytes_ops.c")
    return found


def mend_slices(runtime: Path) -> None:
    """Have `data[5:3]` be empty, as in Python: this compiler's runtime, of which this is the build's copy, raises
    SystemError for bytes, and lengths that strangers send lead to such slices."""
    wrong, right = "slice_len = endn - startn;", "slice_len = endn > startn ? endn - startn : 0;"
    text = runtime.read_text()
    if text.count(wrong) != 1:
        raise SystemExit(f"{runtime} is not what mypyc {MYPY} has there: see how it takes slices of bytes now")
    runtime.write_text(text.replace(wrong, right))


IN_PLACE = {"editable_wheel", "develop", "build_ext"}

if os.environ.get("LOGBOOM_COMPILE") == "1":
    if IN_PLACE & set(sys.argv):
        raise SystemExit(
            "LOGBOOM_COMPILE=1 goes with a wheel alone: beside sources that you change, what was compiled would run "
            "in their place. `LOGBOOM_COMPILE=1 make setup` compiles into .venv-compiled."
        )
    # Before anything is compiled: a source that changes during that is told at the start.
    DIGESTS = {module: hashlib.sha256((ROOT / "src/logboom" / module).read_bytes()).hexdigest() for module in modules()}
    setup(
        # The compiler reads the types of what the modules import, so it builds beside all that they need.
        setup_requires=[f"mypy=={MYPY}", *project()["project"]["dependencies"]],
        ext_modules=extensions() if "bdist_wheel" in sys.argv else [],
        cmdclass={"build_py": WithManifest},
    )
else:
    setup()
