"""One broker for the commands of a module, and streams of one's own in it."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from tests.support.server import BrokerProcess

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cli") / "data") as process:
        yield process


@pytest.fixture
def name() -> Callable[[], str]:
    """Names that nobody else uses."""
    return lambda: f"n-{next(_numbers)}"
