"""OffsetFetch: what groups have committed. Several groups from version 8 on (KIP-709), by stream id from version 10 on.

There are no transactions, so every committed offset is stable and `require_stable` has no effect.

From version 2 on a refusal has one error for the group, and no partitions (KIP-88). aiokafka 0.14 does not check that
error: it treated a refusal as a group without offsets and started where `auto_offset_reset` says, which skips records
if that is the latest. So up to version 3, the newest one that it uses, each partition also has the error, as before
version 2.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.groups import CommittedOffset
from logboom.groups.errors import CoordinatorNotAvailableError, NotCoordinatorError
from logboom.kafka.admin.lookup import find_stream
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 9
_FIRST_WITH_ERROR: Final = 2
_LAST_WITH_ERRORS_OF_PARTITIONS: Final = 3
_FIRST_OF_SEVERAL_GROUPS: Final = 8
_FIRST_BY_ID: Final = 10

_Committed = Mapping[tuple[str, int], CommittedOffset]


def handle(context: RequestContext, request: Any) -> Reply:
    """The offsets of one group or, from version 8 on, of several."""
    cls = response_class(_API_KEY, context.api_version)
    if context.api_version >= _FIRST_OF_SEVERAL_GROUPS:
        one = nested(cls, "groups")
        # A group that is named twice is answered once.
        asked = {group.group_id: group for group in request.groups}
        groups = tuple(make(one, group_id=name, **_group(context, one, group)) for name, group in asked.items())
        return make(cls, throttle_time=milliseconds(0), groups=groups)
    return make(cls, throttle_time=milliseconds(0), **_group(context, cls, request))


def _group(context: RequestContext, cls: Any, asked: Any) -> dict[str, object]:
    """The fields `topics` and `error_code` of one group."""
    committed: _Committed = {}
    error: LogboomError | None = None
    try:
        committed = context.broker.groups.committed(asked.group_id)
    except LogboomError as refused:
        error = refused
    topic_cls, part_cls = nested(cls, "topics"), nested(cls, "topics", "partitions")
    if error is not None and context.api_version > _LAST_WITH_ERRORS_OF_PARTITIONS:
        return {"topics": (), "error_code": error_code(error)}
    topics = tuple(
        make(topic_cls, **named, partitions=tuple(_part(part_cls, index, value, failed) for index, value in parts))
        for named, parts, failed in _wanted(context, asked, committed, _of_partitions(context.api_version, error))
    )
    return {"topics": topics, "error_code": error_code(error)}


def _of_partitions(version: int, error: LogboomError | None) -> LogboomError | None:
    """The error of each partition where a group is refused. aiokafka looks for another coordinator with one alone, and
    gives up with any other that it does not know."""
    if version >= _FIRST_WITH_ERROR and isinstance(error, CoordinatorNotAvailableError):
        return NotCoordinatorError(str(error))
    return error


_Topic = tuple[dict[str, object], list[tuple[int, CommittedOffset | None]], LogboomError | None]


def _wanted(context: RequestContext, asked: Any, committed: _Committed, error: LogboomError | None) -> Iterator[_Topic]:
    """Each topic of the response: its name or id, its partitions, and the error for all of them, if any."""
    by_id = context.api_version >= _FIRST_BY_ID
    if asked.topics is None:
        yield from _all(context, committed, by_id)
        return
    for topic in _once(asked.topics, by_id):
        named: dict[str, object] = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
        name, failed = "", error
        try:
            name = find_stream(context.broker, topic.topic_id).name if by_id else topic.name
        except LogboomError as unknown:
            failed = unknown
        indexes = dict.fromkeys(topic.partition_indexes)
        yield named, [(index, committed.get((name, index))) for index in indexes], failed


def _once(topics: Iterable[Any], by_id: bool) -> Iterable[Any]:
    """Each stream once, however often a request names it: the metadata of a committed offset may have kilobytes."""
    return {topic.topic_id if by_id else topic.name: topic for topic in topics}.values()


def _all(context: RequestContext, committed: _Committed, by_id: bool) -> Iterator[_Topic]:
    by_name: dict[str, list[tuple[int, CommittedOffset | None]]] = {}
    for (name, index), value in committed.items():
        by_name.setdefault(name, []).append((index, value))
    for name, parts in by_name.items():
        stream = context.broker.catalog.stream(name)
        if not by_id:
            yield {"name": name}, parts, None
        elif stream is not None:
            yield {"topic_id": stream.id}, parts, None


def _part(cls: Any, index: int, value: CommittedOffset | None, error: LogboomError | None) -> Entity:
    known = value is not None and error is None
    return make(
        cls,
        partition_index=index,
        committed_offset=value.offset if value is not None and known else -1,
        committed_leader_epoch=value.leader_epoch if value is not None and known else -1,
        metadata=value.metadata if value is not None and known else "",
        error_code=error_code(error),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=1, max_version=10, handle=handle)
