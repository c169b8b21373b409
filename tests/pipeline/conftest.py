"""One Spark session, one broker and JVMs that check conditions for all tests of the pipeline that need them, and a disk
that a test may fill."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalyst_jvms import shared_catalyst_jvms
from tests.support.server import BrokerProcess

__all__ = ["broker", "shared_catalyst_jvms", "small_disk", "spark"]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from logboom.pipeline.spark.session import start_session
    from logboom.pipeline.spark.settings import SessionOptions

    session = start_session("tests", SessionOptions(master="local[2]", extra_slots=3))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 24 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)], check=False)
    if mounted.returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)
