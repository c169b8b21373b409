"""A broker takes all the open files it may have, whatever the shell that starts it was content with."""

import resource
from pathlib import Path

from tests.support.server import BrokerProcess


def test_the_soft_limit_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        with BrokerProcess(tmp_path / "data") as broker:
            assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
