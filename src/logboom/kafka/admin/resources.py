"""The kinds of things that have settings in the Kafka protocol (ConfigResource.Type), and those of each kind here."""

from collections.abc import Iterator
from enum import IntEnum

from logboom.broker.broker import Broker


class ResourceType(IntEnum):
    """As DescribeConfigs, AlterConfigs and ListConfigResources number them."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    """Subscriptions to the metrics of clients (KIP-714): none, telemetry is not served."""
    GROUP = 32
    """Settings of single groups (KIP-848): none, members of classic groups bring their own."""


def names_of(broker: Broker, kind: ResourceType) -> Iterator[str]:
    """The resources of a kind that have settings."""
    match kind:
        case ResourceType.TOPIC:
            yield from broker.catalog.streams()
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            yield str(broker.identity.broker_id)
        case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
            return
