"""What the tests of NATS share."""

from collections.abc import Iterator

import pytest
from tests.support.server import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a nats-server of its own."""
    directory = tmp_path_factory.mktemp("nats")
    settings = ("--nats", "embedded", "--set", "nats.embedded_listen=127.0.0.1:0")
    with BrokerProcess(directory / "data", *settings) as process:
        yield process
