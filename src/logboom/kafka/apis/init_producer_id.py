"""InitProducerId (KIP-98, KIP-360): an id for an idempotent producer. There are no transactions."""

from typing import Any, Final

from logboom.base.errors import LogboomError, NotControllerError, OutcomeUnknownError, UnsupportedTransactionError
from logboom.groups.errors import CoordinatorLoadInProgressError
from logboom.kafka.errors import NO_TRANSACTIONS, error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.controller_wait import briefly
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, response_class

_API_KEY: Final = 22
_NONE: Final = -1


async def handle(context: RequestContext, request: Any) -> Reply:
    """A new id at epoch 0. A producer that asks to raise its epoch (KIP-360) gets a new id too and gives up the old
    one."""
    error: LogboomError | None = None
    producer_id = _NONE
    try:
        if request.transactional_id is not None:
            context.server.log.warning(
                "transactional producer",
                "a producer asked for transactions, which this broker does not serve",
                transactional_id=request.transactional_id[:100],
                client=context.client_host,
                client_id=context.client_id,
            )
            raise UnsupportedTransactionError(NO_TRANSACTIONS)
        producer_id = await briefly(context.broker.producer_ids.allocate())
    except (NotControllerError, OutcomeUnknownError) as later:
        # As Kafka answers while it has no block of ids: of all errors that pass, the one every producer waits for.
        error = CoordinatorLoadInProgressError(str(later))
    except LogboomError as refused:
        error = refused
    return make(
        response_class(_API_KEY, context.api_version),
        throttle_time=milliseconds(0),
        error_code=error_code(error),
        producer_id=producer_id,
        producer_epoch=0 if error is None else _NONE,
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=5, handle=handle)
