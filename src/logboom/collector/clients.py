"""Which client carries the lines out, as the configuration and its options ask."""

from collections.abc import Callable
from functools import partial

from logboom.collector.batch_client import BatchClient, can_serve
from logboom.collector.config import ClientKind, OutputConfig
from logboom.collector.delivery import Client, OnError
from logboom.collector.record_client import RecordClient, producer_options


def client_of(output: OutputConfig) -> Callable[[OnError], Client]:
    """Makes the client, again and again if need be."""
    options = producer_options(output.bootstrap, output.librdkafka)
    if output.client is ClientKind.AUTO and can_serve(output.librdkafka):
        return partial(BatchClient, options)
    return partial(RecordClient, options)
