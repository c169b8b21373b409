"""From items to requests: this many events, this many bytes, of one partition, in order. Pure.

A task mostly has one partition. Where it has several, since memory was short, a request ends where the next partition
begins all the same: a server that knows a request again by its events then finds it so, whatever tasks there are.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from logboom.pipeline.sinks.bulk.target import Item


@dataclass(frozen=True, slots=True)
class RequestSizeLimits:
    """What one request may hold."""

    max_events: int
    max_bytes: int
    """Of the items' payloads before compression. An item that is larger alone has a request of its own."""


def requests_of(items: Iterable[Item], limits: RequestSizeLimits) -> Iterator[list[Item]]:
    """The items in requests, each as full as its limits allow."""
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
    """Both parts of a request that is refused as a whole."""
    middle = len(items) // 2
    return items[:middle], items[middle:]
