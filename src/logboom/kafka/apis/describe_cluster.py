"""DescribeCluster (KIP-700, KIP-919): the brokers of the cluster, which is this one."""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.kafka.admin.operations import CLUSTER_OPERATIONS, authorized_operations
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 60
_BROKERS: Final = 1


def handle(context: RequestContext, request: Any) -> Reply:
    """Describe the brokers. There are no controllers with an endpoint of their own."""
    cls = response_class(_API_KEY, context.api_version)
    host, port = context.server.advertised()
    identity = context.broker.identity
    refused = context.api_version >= 1 and request.endpoint_type != _BROKERS
    broker = make(
        nested(cls, "brokers"), broker_id=identity.broker_id, host=host, port=port, rack=None, is_fenced=False
    )
    return make(
        cls,
        throttle_time=milliseconds(0),
        error_code=ErrorCode.unsupported_endpoint_type if refused else ErrorCode.none,
        error_message="only brokers (endpoint type 1) can be described here" if refused else None,
        endpoint_type=_BROKERS,
        cluster_id=identity.cluster_id,
        controller_id=-1 if refused else identity.broker_id,
        brokers=() if refused else (broker,),
        cluster_authorized_operations=authorized_operations(
            CLUSTER_OPERATIONS, requested=request.include_cluster_authorized_operations and not refused
        ),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle)
