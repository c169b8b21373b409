"""Metadata: the broker, and the streams with their partitions; asking for an unknown stream may create it.

A stream that a request names often is described once, as in Kafka: a short request must not ask for gigabytes.
Clients ask often and mostly for what has not changed, and ten thousand partitions take tens of milliseconds to write:
the bytes of each stream are kept per version, for as long as the stream is the same object.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from logboom.base.errors import LogboomError, StreamExistsError, UnknownStreamError, UnknownStreamIdError
from logboom.base.ids import StreamId
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.handler import Encoded, Entity, Handler, Reply, RequestContext
from logboom.kafka.wire.encoding import count
from logboom.kafka.wire.error_counts import count_errors
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.kafka.wire.writing import encode
from logboom.metadata import Stream, check_name

_API_KEY: Final = 3
_WITH_THROTTLE: Final = 3
_NOT_ASKED: Final = -(2**31)
"""What stands for authorized operations where nobody asked, and where there is no authorization to tell of."""


def handle(context: RequestContext, request: Any) -> Reply:
    """Describe what is there at once; go on in a task only where a stream has to be created."""
    wanted = _wanted(context, request)
    if wanted is None:
        return context.shared.metadata_cache.all(context)
    may_create = context.broker.config.auto_create_streams and (
        context.api_version < 4 or request.allow_auto_topic_creation
    )
    missing = [name for name, _ in wanted if name is not None and context.broker.stream(name) is None]
    if missing and may_create:
        return _create_and_describe(context, wanted, missing)
    return _response(context, len(wanted), b"".join(_find(context, name, id_) for name, id_ in wanted))


_Wanted = list[tuple[str | None, StreamId | None]]


def _wanted(context: RequestContext, request: Any) -> _Wanted | None:
    """Names or ids; None for all. Version 0 says all with an empty list, later ones with null."""
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return None
    if context.api_version < 10:
        return [(name, None) for name in dict.fromkeys(topic.name for topic in request.topics)]
    # An id counts only without a name, as in Kafka: clients up to version 11 may send zeros beside the name.
    wanted = (
        (topic.name, None) if topic.name is not None else (None, StreamId(topic.topic_id) if topic.topic_id else None)
        for topic in request.topics
    )
    return list(dict.fromkeys(wanted))


async def _create_and_describe(context: RequestContext, wanted: _Wanted, missing: Iterable[str]) -> Encoded:
    errors: dict[str, LogboomError] = {}
    for name in dict.fromkeys(missing):
        try:
            await context.broker.create_stream(name)
        except StreamExistsError:
            continue  # somebody else was faster
        except LogboomError as error:
            errors[name] = error
    described = [
        _refuse(context, name, None, errors[name]) if name in errors else _find(context, name, id_)
        for name, id_ in wanted
    ]
    return _response(context, len(described), b"".join(described))


def _find(context: RequestContext, name: str | None, id_: StreamId | None) -> bytes | bytearray:
    if name is None:
        stream = None if id_ is None else context.broker.stream_by_id(id_)
        if stream is None:
            return _refuse(context, None, id_, UnknownStreamIdError("no stream has this id"))
        return context.shared.metadata_cache.stream(context, stream)
    stream = context.broker.stream(name)
    if stream is not None:
        return context.shared.metadata_cache.stream(context, stream)
    try:
        check_name(name)
    except LogboomError as error:
        return _refuse(context, name, None, error)
    return _refuse(context, name, None, UnknownStreamError("no stream has this name"))


def _refuse(context: RequestContext, name: str | None, id_: StreamId | None, error: LogboomError) -> bytearray:
    if name is None and context.api_version < 12:
        name = ""  # null came with version 12
    topic = make(
        nested(response_class(_API_KEY, context.api_version), "topics"),
        error_code=context.code_of(error),
        name=name,
        topic_id=id_,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=_NOT_ASKED,
    )
    count_errors(topic, context.shared.metrics.api(_API_KEY).errors)
    return encode(topic)


class MetadataCache:
    """Written parts of replies, per version. Life: that of the door.

    A stream's partitions lead from the moment it is seen until it is deleted, so its object stands for all there is
    to say; once leaders move, what they moved to belongs into the comparison.
    """

    def __init__(self) -> None:
        self._streams: dict[int, dict[StreamId, tuple[Stream, bytes]]] = {}
        self._all: dict[int, tuple[Mapping[Any, Stream], bytes]] = {}

    def stream(self, context: RequestContext, stream: Stream) -> bytes:
        """A stream's bytes."""
        known = self._streams.setdefault(context.api_version, {})
        found = known.get(stream.id)
        if found is not None and found[0] is stream:
            return found[1]
        if len(known) > len(context.broker.streams()):  # some were deleted
            known.clear()
        data = bytes(encode(_describe(context, stream)))
        known[stream.id] = (stream, data)
        return data

    def all(self, context: RequestContext) -> Encoded:
        """A reply about every stream. Its head is new each time, for a client's wait is written into it."""
        streams = context.broker.streams()
        found = self._all.get(context.api_version)
        if found is None or found[0] is not streams:
            data = b"".join(self.stream(context, stream) for stream in streams.values())
            found = self._all[context.api_version] = (streams, data)
        return _response(context, len(streams), found[1])


def _describe(context: RequestContext, stream: Stream) -> Entity:
    cls = response_class(_API_KEY, context.api_version)
    part_cls = nested(cls, "topics", "partitions")
    return make(
        nested(cls, "topics"),
        error_code=error_code(None),
        name=stream.name,
        topic_id=stream.id,
        is_internal=stream.internal,
        partitions=tuple(_partition(context, part_cls, stream, index) for index in range(stream.partitions)),
        topic_authorized_operations=_NOT_ASKED,
    )


def _partition(context: RequestContext, part_cls: Any, stream: Stream, index: int) -> Entity:
    broker_id = context.broker.identity.broker_id
    error = None
    epoch = -1
    try:
        epoch = context.broker.partition(stream.name, index).leader_epoch
    except LogboomError as refused:
        error = refused  # its files could not be opened
    return make(
        part_cls,
        error_code=error_code(error),
        partition_index=index,
        leader_id=broker_id if error is None else -1,
        leader_epoch=epoch,
        replica_nodes=(broker_id,),
        isr_nodes=(broker_id,) if error is None else (),
        offline_replicas=() if error is None else (broker_id,),
    )


def _response(context: RequestContext, topics: int, data: bytes) -> Encoded:
    cls, version = response_class(_API_KEY, context.api_version), context.api_version
    host, port = context.shared.advertised
    identity = context.broker.identity
    without_topics = encode(
        make(
            cls,
            throttle_time=milliseconds(0),
            brokers=(make(nested(cls, "brokers"), node_id=identity.broker_id, host=host, port=port, rack=None),),
            cluster_id=identity.cluster_id,
            controller_id=identity.broker_id,
            topics=(),
            cluster_authorized_operations=_NOT_ASKED,
            error_code=error_code(None),
        )
    )
    flexible = cls.__flexible__
    # Behind the topics come the authorized operations (versions 8 to 10), the error code (from 13 on), the tags.
    behind = (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + (1 if flexible else 0)
    end = len(without_topics) - behind
    before = without_topics[: end - len(count(0, flexible=flexible))] + count(topics, flexible=flexible)
    return Encoded((before, data, without_topics[end:]), throttle_at=0 if version >= _WITH_THROTTLE else -1)


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=13, handle=handle)
