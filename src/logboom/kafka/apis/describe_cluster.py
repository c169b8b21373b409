"""DescribeCluster (KIP-700, KIP-919, KIP-1073): the brokers of the cluster, on request those that are fenced too."""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.kafka.admin.operations import CLUSTER_OPERATIONS, authorized_operations
from logboom.kafka.cluster.view import Node
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 60
_WITH_FENCED: Final = 2
_BROKERS: Final = 1


def handle(context: RequestContext, request: Any) -> Reply:
    """Describe the brokers. There are no controllers with an endpoint of their own."""
    cls, cluster = response_class(_API_KEY, context.api_version), context.server.cluster
    refused = context.api_version >= 1 and request.endpoint_type != _BROKERS
    broker_cls = nested(cls, "brokers")
    brokers = [_broker(broker_cls, one, fenced=False) for one in cluster.nodes().values()]
    if context.api_version >= _WITH_FENCED and request.include_fenced_brokers:
        brokers += [_broker(broker_cls, one, fenced=True) for one in cluster.fenced()]
    return make(
        cls,
        throttle_time=milliseconds(0),
        error_code=ErrorCode.unsupported_endpoint_type if refused else ErrorCode.none,
        error_message="only brokers (endpoint type 1) can be described here" if refused else None,
        endpoint_type=_BROKERS,
        cluster_id=context.broker.identity.cluster_id,
        controller_id=-1 if refused else cluster.controller(),
        brokers=() if refused else tuple(brokers),
        cluster_authorized_operations=authorized_operations(
            CLUSTER_OPERATIONS, requested=request.include_cluster_authorized_operations and not refused
        ),
    )


def _broker(cls: Any, node: Node, *, fenced: bool) -> Entity:
    return make(cls, broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=fenced)


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle)
