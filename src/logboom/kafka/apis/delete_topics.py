"""DeleteTopics, by name, and from version 6 by id (KIP-516)."""

from typing import Any, Final

from logboom.base.errors import InvalidRequestError, LogboomError, UnknownStreamError, UnknownStreamIdError
from logboom.base.ids import StreamId
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 20
_BY_ID: Final = 6


async def handle(context: RequestContext, request: Any) -> Reply:
    """Delete each stream. When the response leaves its name is free."""
    cls = response_class(_API_KEY, context.api_version)
    if context.api_version >= _BY_ID:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    results = [await _delete(context, name, id_) for name, id_ in wanted]
    return make(cls, throttle_time=milliseconds(0), responses=tuple(results))


async def _delete(context: RequestContext, name: str | None, id_: Any) -> Entity:
    error = None
    try:
        if (name is None) == (id_ is None):
            raise InvalidRequestError("a stream to delete is named by its name or by its id, and not by both")
        stream = (
            context.broker.catalog.stream(name)
            if name is not None
            else context.broker.catalog.stream_by_id(StreamId(id_))
        )
        if stream is None:
            raise UnknownStreamError(f"no stream is named {name!r}") if name else UnknownStreamIdError(f"no id {id_}")
        name, id_ = stream.name, stream.id
        await context.broker.catalog.delete_stream(stream.name)
    except LogboomError as refused:
        error = refused
    return make(
        nested(response_class(_API_KEY, context.api_version), "responses"),
        name=name,
        topic_id=id_,
        error_code=error_code(error),
        error_message=error_message(error),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=1, max_version=6, handle=handle, changes=True)
