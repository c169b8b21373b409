"""FindCoordinator: the leader of the partition that a group is kept in. Batched from version 4 on (KIP-699).

Version 6 differs by the coordinators of share groups, which are not served (KIP-932). It is offered all the same: a
client that is configured for Kafka 4 sends it for every group, without asking for the versions first.
"""

from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.base.errors import LogboomError, UnsupportedTransactionError
from logboom.broker.groups.service import OFFSETS_STREAM
from logboom.groups import partition_of_group
from logboom.groups.errors import CoordinatorNotAvailableError
from logboom.kafka.errors import NO_TRANSACTIONS, error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.controller_wait import briefly
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.metadata import Stream

_API_KEY: Final = 10
_FIRST_BATCHED: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1


def handle(context: RequestContext, request: Any) -> Reply:
    """The coordinator of each key; before version 4 there is one key."""
    keys = (request.key,) if context.api_version < _FIRST_BATCHED else request.coordinator_keys
    key_type = getattr(request, "key_type", _GROUP)
    stream = context.broker.catalog.stream(OFFSETS_STREAM)
    if stream is None and key_type == _GROUP:
        return _create_and_answer(context, keys)
    return _answer(context, keys, key_type, stream)


async def _create_and_answer(context: RequestContext, keys: Sequence[str]) -> Reply:
    """The first group of the cluster is asked for."""
    try:
        stream = await briefly(context.broker.groups.offsets_stream())
    except LogboomError as error:
        context.server.log.warning(
            "no offsets stream",
            "the stream that holds the groups does not exist",
            reason=str(error),
        )
        return _answer(context, keys, _GROUP, None)
    return _answer(context, keys, _GROUP, stream)


def _answer(context: RequestContext, keys: Sequence[str], key_type: int, stream: Stream | None) -> Entity:
    cls = response_class(_API_KEY, context.api_version)
    found = [_coordinator(context, key, key_type, stream) for key in keys]
    if context.api_version < _FIRST_BATCHED:
        return make(cls, throttle_time=milliseconds(0), **found[0])
    one = nested(cls, "coordinators")
    coordinators = tuple(make(one, key=key, **fields) for key, fields in zip(keys, found, strict=True))
    return make(cls, throttle_time=milliseconds(0), coordinators=coordinators)


def _coordinator(context: RequestContext, key: str, key_type: int, stream: Stream | None) -> dict[str, object]:
    if key_type == _TRANSACTION:
        # The first request of a transactional producer. librdkafka and the Java client fail at once for this error
        # alone; any other, INVALID_REQUEST too, librdkafka asks again until init_transactions times out.
        error = UnsupportedTransactionError(NO_TRANSACTIONS)
        return _no_coordinator(error_code(error), str(error))
    if key_type != _GROUP:
        return _no_coordinator(ErrorCode.invalid_request, f"coordinator type {key_type} is not served by this broker")
    cluster = context.server.cluster
    leader = None if stream is None else cluster.partition(stream, partition_of_group(key, stream.partitions)).leader
    node = None if leader is None else cluster.nodes().get(leader)
    if node is None:
        missing = CoordinatorNotAvailableError("the partition that holds the group has no leader")
        return _no_coordinator(error_code(missing), str(missing))
    return {
        "node_id": node.id,
        "host": node.host,
        "port": node.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


def _no_coordinator(code: ErrorCode, message: str) -> dict[str, object]:
    return {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=6, handle=handle)
