"""Produce: each partition's batch goes to the broker as it lies in the frame, and the response leaves when all are
served.

Version 0 is advertised because older librdkafka concludes from it whether it may compress, but versions 0 to 2 carry
the message formats before record batches: they get a response that says UNSUPPORTED_VERSION for every partition.
"""

from typing import Any, Final

from logboom.kafka.errors import UnsupportedVersionError
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.produce.fast_path import template_of
from logboom.kafka.produce.general import produce
from logboom.kafka.produce.response import API_KEY, PartitionProduce, encode_response
from logboom.kafka.wire.encoded import EncodedResponse
from logboom.kafka.wire.reading import reader_for

_OLDEST: Final = 3


def handle(context: RequestContext, request: Any) -> Reply:
    """Append everything; answer when acks is satisfied for all partitions."""
    return produce(context, request)


def handle_unsupported(context: RequestContext, frame: memoryview, position: int) -> EncodedResponse | None:
    """Answer a version before record batches with an error per partition; newer versions than ours close."""
    if not 0 <= context.api_version < _OLDEST:
        return None
    # Version 3 only put a nullable transactional id in front.
    body = memoryview(bytearray(b"\xff\xff" + frame[position:]))
    request, _, _ = reader_for(API_KEY, _OLDEST)(body, 0, context.server.config.now.max_request_elements)
    if request.acks == 0:
        return None
    error = UnsupportedVersionError("message formats before version 2 are not accepted: use Produce version 3 or newer")
    topics = [
        (topic.name, [PartitionProduce(data.index, error) for data in topic.partition_data])
        for topic in request.topic_data
    ]
    return encode_response(context.api_version, topics)


HANDLER = Handler(
    api_key=API_KEY,
    min_version=_OLDEST,
    max_version=13,
    handle=handle,
    advertised_min_version=0,
    handle_unsupported=handle_unsupported,
    template_of=template_of,
    changes=True,
    waits_for_append_capacity=True,
)
