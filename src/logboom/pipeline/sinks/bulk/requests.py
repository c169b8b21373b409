"""Groups items into requests, limited by events and bytes, of one partition each and in order. Pure.

A task usually has one partition. It can have several when memory is short. A request still ends at the end of a
partition, so that the same events are grouped together in every attempt, however many tasks there are: some servers
recognise a repeated request by its events.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from logboom.pipeline.sinks.bulk.target import Item


@dataclass(frozen=True, slots=True)
class RequestSizeLimits:
    """What one request may hold."""

    max_events: int
    max_bytes: int
    """Size of the items' payloads before compression. A single larger item gets a request of its own."""


def requests_of(items: Iterable[Item], limits: RequestSizeLimits) -> Iterator[list[Item]]:
    """Group items into requests, each as full as the limits allow."""
    request: list[Item] = []
    size = 0
    for item in items:
        length = len(item.payload)
        is_full = len(request) >= limits.max_events or size + length > limits.max_bytes
        if request and (is_full or item.place != request[0].place):
            yield request
            request, size = [], 0
        request.append(item)
        size += length
    if request:
        yield request


def halves(items: list[Item]) -> tuple[list[Item], list[Item]]:
    """Split a request that was refused as a whole into two halves."""
    middle = len(items) // 2
    return items[:middle], items[middle:]
