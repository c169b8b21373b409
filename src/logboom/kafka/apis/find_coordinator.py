"""FindCoordinator: this broker, for every group. Batched from version 4 on (KIP-699).

Version 6 differs by the coordinators of share groups, which are not served (KIP-932). It is offered all the same: a
client that is configured for Kafka 4 sends it for every group, without asking for the versions first.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.base.errors import UnsupportedTransactionError
from logboom.kafka.errors import NO_TRANSACTIONS, error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 10
_FIRST_BATCHED: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1


def handle(context: RequestContext, request: Any) -> Reply:
    """The coordinator of each key; before version 4 there is one key."""
    cls = response_class(_API_KEY, context.api_version)
    key_type = getattr(request, "key_type", _GROUP)
    if context.api_version < _FIRST_BATCHED:
        return make(cls, throttle_time=milliseconds(0), **_coordinator(context, key_type))
    one = nested(cls, "coordinators")
    found: tuple[Entity, ...] = tuple(
        make(one, key=key, **_coordinator(context, key_type)) for key in request.coordinator_keys
    )
    return make(cls, throttle_time=milliseconds(0), coordinators=found)


def _coordinator(context: RequestContext, key_type: int) -> dict[str, object]:
    if key_type == _TRANSACTION:
        # The first request of a transactional producer. librdkafka and the Java client fail at once for this error
        # alone; any other, INVALID_REQUEST too, librdkafka asks again until init_transactions times out.
        error = UnsupportedTransactionError(NO_TRANSACTIONS)
        return _no_coordinator(error_code(error), str(error))
    if key_type != _GROUP:
        return _no_coordinator(ErrorCode.invalid_request, f"coordinator type {key_type} is not served by this broker")
    host, port = context.server.advertised()
    node_id = context.broker.identity.broker_id
    return {"node_id": node_id, "host": host, "port": port, "error_code": ErrorCode.none, "error_message": None}


def _no_coordinator(code: ErrorCode, message: str) -> dict[str, object]:
    return {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=6, handle=handle)
