"""A broker takes all the open files it may have, whatever the shell that starts it was content with."""

import resource
from pathlib import Path

import structlog
from structlog.testing import capture_logs
from tests.support.server import BrokerProcess

from logboom.app.config import NodeConfig
from logboom.app.process import _check_file_limit


def test_the_soft_limit_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        with BrokerProcess(tmp_path / "data") as broker:
            assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
            assert "fewer open files" not in broker.log_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_hard_limit_below_the_brokers_own_is_told() -> None:
    node = NodeConfig()
    with capture_logs() as logs:
        _check_file_limit(node, 1_024, structlog.get_logger())
        _check_file_limit(node, 65_536, structlog.get_logger())
        _check_file_limit(node, resource.RLIM_INFINITY, structlog.get_logger())
    assert [line["needed"] for line in logs] == [4_096 + 8_192 + 512]
