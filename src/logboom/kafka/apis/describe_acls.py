"""DescribeAcls (KIP-140): there is no authorizer, and the answer says so as a Kafka broker without one does.

Clients accept SECURITY_DISABLED as an answer: MirrorMaker copies streams and leaves ACLs out. If the API were not
supported, they would report an error again and again.
"""

from typing import Any, Final

from logboom.kafka.errors import NO_ACLS, SecurityDisabledError, error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, response_class

_API_KEY: Final = 29


def handle(context: RequestContext, request: Any) -> Reply:
    """SECURITY_DISABLED, whatever is asked for."""
    return make(
        response_class(_API_KEY, context.api_version),
        throttle_time=milliseconds(0),
        error_code=error_code(SecurityDisabledError(NO_ACLS)),
        error_message=NO_ACLS,
        resources=(),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=1, max_version=3, handle=handle)
