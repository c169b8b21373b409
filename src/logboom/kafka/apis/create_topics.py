"""CreateTopics: new streams; each has its own result."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from logboom.base.errors import InvalidAssignmentError, InvalidRequestError, LogboomError
from logboom.broker.stream_creation import NewStream
from logboom.kafka.admin.configs import describe_stream
from logboom.kafka.errors import error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.metadata import Stream

_API_KEY: Final = 19
_DEFAULT: Final = -1
_UNKNOWN: Final = -1


async def handle(context: RequestContext, request: Any) -> Reply:
    """Create what can be created. A name that the request has twice is not created at all, as in Kafka."""
    cls = response_class(_API_KEY, context.api_version)
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, Entity] = {}
    wanted: list[NewStream] = []
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError(f"the request names {topic.name!r} {counts[topic.name]} times")
            _check_shape(topic)
        except LogboomError as error:
            results[topic.name] = _result(context, topic.name, error)
        else:
            wanted.append(_wanted(topic))
    create = _validate if request.validate_only else _create
    for one, outcome in zip(wanted, await create(context, wanted), strict=True):
        results[one.name] = _result(context, one.name, outcome)
    topics = tuple(results[name] for name in counts)
    return make(cls, throttle_time=milliseconds(0), topics=topics)


async def _create(context: RequestContext, wanted: Sequence[NewStream]) -> Sequence[Stream | LogboomError]:
    return await context.broker.catalog.create_streams(wanted)


async def _validate(context: RequestContext, wanted: Sequence[NewStream]) -> Sequence[Stream | LogboomError]:
    outcomes: list[Stream | LogboomError] = []
    for one in wanted:
        try:
            outcomes.append(await context.broker.catalog.create_stream(**one._asdict(), validate_only=True))
        except LogboomError as error:
            outcomes.append(error)
    return outcomes


def _wanted(topic: Any) -> NewStream:
    return NewStream(
        topic.name,
        partitions=None if topic.num_partitions == _DEFAULT else topic.num_partitions,
        replication_factor=None if topic.replication_factor == _DEFAULT else topic.replication_factor,
        config={config.name: config.value for config in topic.configs},
        assignments=[one.broker_ids for one in sorted(topic.assignments, key=_index)] or None,
    )


def _index(assignment: Any) -> int:
    index: int = assignment.partition_index
    return index


def _check_shape(topic: Any) -> None:
    """A number of replicas may be asked for, or the replicas, not both."""
    if not topic.assignments:
        return
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        raise InvalidRequestError("with an assignment, partitions and replication factor must both be -1")
    if sorted(map(_index, topic.assignments)) != list(range(len(topic.assignments))):
        raise InvalidAssignmentError("an assignment must name the partitions from 0 on, each once")


def _result(context: RequestContext, name: str, outcome: Stream | LogboomError) -> Entity:
    error, stream = (outcome, None) if isinstance(outcome, LogboomError) else (None, outcome)
    cls = nested(response_class(_API_KEY, context.api_version), "topics")
    return make(
        cls,
        name=name,
        topic_id=None if stream is None else stream.id,
        error_code=context.code_of(error),
        error_message=error_message(error),
        num_partitions=_UNKNOWN if stream is None else stream.partitions,
        replication_factor=_UNKNOWN if stream is None else _factor(stream),
        configs=_configs(context, stream),
    )


def _factor(stream: Stream) -> int:
    return len(stream.assignments[0].replicas) if stream.assignments else 1


def _configs(context: RequestContext, stream: Stream | None) -> tuple[Entity, ...] | None:
    if stream is None or context.api_version < 5:
        return None
    cls = nested(response_class(_API_KEY, context.api_version), "topics", "configs")
    return tuple(
        make(
            cls,
            name=one.name,
            value=one.value,
            read_only=one.read_only,
            config_source=one.source,
            is_sensitive=False,
        )
        for one in describe_stream(context.broker, stream)
    )


HANDLER = Handler(api_key=_API_KEY, min_version=2, max_version=7, handle=handle, changes=True)
