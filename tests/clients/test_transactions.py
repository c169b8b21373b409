"""A transactional producer of librdkafka is told at once that transactions are not served."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from tests.support.server import BrokerProcess

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

TIMEOUT_S = 30.0
AT_ONCE_S = 10.0
"""Far below the client's own time-out, and far above what a loaded machine needs for three round trips."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactions")) as process:
        yield process


def test_init_transactions_fails_at_once_with_error_53(broker: BrokerProcess) -> None:
    """librdkafka asks FindCoordinator first, and asks again for every error but those it takes as fatal."""
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": "t"})
    started_s = time.monotonic()
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(TIMEOUT_S)
    error = refused.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, error
    assert error.fatal()
    assert not error.retriable()
    assert time.monotonic() - started_s < AT_ONCE_S
