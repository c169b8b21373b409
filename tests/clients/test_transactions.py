"""A transactional producer of librdkafka is told at once that transactions are not served."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

"""Far below the client's own time-out, and far above what a loaded machine needs for three round trips."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactions")) as process:
        yield process


def test_init_transactions_fails_at_once_with_error_53(broker: BrokerProcess) -> None:
    """librdkafka asks FindCoordinator first, and asks again for every error but those it takes as fatal,
    until its time is over: then the error would be another one."""
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": "t"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(WAIT_S)
    error = refused.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, error
    assert error.fatal()
    assert not error.retriable()
