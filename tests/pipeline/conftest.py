"""One Spark session and one broker for all tests of the pipeline that need them."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.server import BrokerProcess


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
