"""One broker for the tables of a module, whose cleaner looks often, and a table of one's own in it."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.support.server import BrokerProcess

from logboom.table import Table

CLEAN_OFTEN = ("--set", "broker.cleaner.backoff_ms=20ms", "--set", "broker.retention_check_interval_s=1s")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("table") / "data", *CLEAN_OFTEN) as process:
        yield process


@pytest.fixture
def stream(broker: BrokerProcess) -> str:
    """A table of three partitions."""
    name = f"t-{next(_numbers)}"
    assert Table.create(broker.kafka, name, partitions=3)
    return name


@pytest.fixture
def opened(broker: BrokerProcess, stream: str) -> Iterator[Callable[..., Table]]:
    """Opens the table, as often as asked; all are closed at the end."""
    with ExitStack() as stack:

        def open_one(name: str = stream, **more: Any) -> Table:
            return stack.enter_context(Table.open(broker.kafka, name, **{"timeout_s": 60, **more}))

        yield open_one
