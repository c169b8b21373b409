"""What clients see of a broker that has lost its lease, since no controller is left that could renew it."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.support.brokers import ClusterBrokers
from tests.support.waiting import WAIT_S

LEASE_S = 6
REQUEST_S = 8
"""How long a request may wait at a broker without a controller. What is asked meanwhile over the same connection waits
behind it. Longer than a lease, and far shorter than the ten for which a broker that has none names itself
(`isolation.NAMED_LEASES`)."""


def named_without_a_lease(cluster: ClusterBrokers, admin: AdminClient) -> set[int]:
    """The brokers that a broker names once it does not lead for certain any more."""

    def told() -> set[int]:
        metadata = admin.list_topics(timeout=2 * REQUEST_S)  # it may wait behind the creation of a stream
        return set(metadata.brokers) if metadata.topics["orders"].partitions[0].leader < 0 else set()

    return cluster.wait_for(told, "that it knows that it has no lease")


@pytest.mark.slow
def test_a_broker_that_is_left_alone_goes_on_naming_itself(tmp_path: Path) -> None:
    """librdkafka ends a broker that it has learned of from Metadata and that Metadata leaves out, with all that waits
    there. The client has learned of this one from another, which is gone."""
    with ClusterBrokers(tmp_path, lease_ms=1_000 * LEASE_S) as cluster:
        cluster.create("orders")
        alone = cluster.leader("orders", 0)
        others = [number for number in cluster.brokers if number != alone]
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": cluster[others[0]].kafka,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        }
        admin = AdminClient(settings)
        producer = Producer(settings | {"acks": "all", "message.timeout.ms": 1_000 * WAIT_S})
        errors: list[KafkaError | None] = []
        producer.produce("orders", b"before", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT_S) == 0
        # Each broker names itself as the one for requests to the controller: from now on that is the one that stays.
        # The client connects to a broker that it needs, and sends what any may answer over any connection that it has.
        own = ConfigResource(ConfigResource.Type.BROKER, str(alone))
        admin.describe_configs([own])[own].result(WAIT_S)
        cluster.wait_for(lambda: admin.list_topics(timeout=REQUEST_S).controller_id == alone, "an answer of its own")
        for number in others:
            cluster[number].kill9()
        producer.produce("orders", b"meanwhile", on_delivery=lambda error, _: errors.append(error))
        asked = admin.create_topics([NewTopic("more", 1, 3)], operation_timeout=REQUEST_S, request_timeout=WAIT_S)
        named = named_without_a_lease(cluster, admin)
        with pytest.raises(KafkaException) as refused:
            asked["more"].result(WAIT_S)
        cluster.start(*others)
        assert producer.flush(WAIT_S) == 0
        assert (refused.value.args[0].name(), errors, named) == ("REQUEST_TIMED_OUT", [None, None], {1, 2, 3})
