"""Networks and disks for the brokers of a cluster, which tests break."""

import errno
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.faults.cut_network import CutNetwork
from tests.support.fusedisk import CannotMountError, FuseDisk
from tests.support.skipping import skipped_on

NUMBERS = (1, 2, 3)


@pytest.fixture
def network() -> Iterator[CutNetwork]:
    """A network namespace for each of three brokers."""
    with CutNetwork(NUMBERS) as made:
        yield made


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[int, FuseDisk]]:
    """A disk for each of three brokers, which fails when it is told to."""
    with ExitStack() as mounted, skipped_on(CannotMountError):
        yield {
            number: mounted.enter_context(FuseDisk(tmp_path / f"fuse-{number}", capacity_bytes=512 << 20))
            for number in NUMBERS
        }


def fail_syncs(disk: FuseDisk) -> None:
    """From now on every sync ends with EIO."""
    disk.fault = lambda operation, path: errno.EIO if operation == "fsync" else None


def works_again(disk: FuseDisk) -> None:
    """Nothing fails from now on."""
    disk.fault = lambda operation, path: None
