"""UnregisterBroker (KIP-500): a broker that is stopped leaves the cluster for good."""

from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.kafka.errors import error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, response_class

_API_KEY: Final = 64


async def handle(context: RequestContext, request: Any) -> Reply:
    """Forget the broker, or say why that cannot be."""
    error: LogboomError | None = None
    try:
        await context.broker.cluster_admin.unregister_broker(request.broker_id)
    except LogboomError as refused:
        error = refused
    return make(
        response_class(_API_KEY, context.api_version),
        throttle_time=milliseconds(0),
        error_code=context.code_of(error),
        error_message=error_message(error),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=0, handle=handle, changes=True)
