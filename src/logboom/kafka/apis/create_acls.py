"""CreateAcls (KIP-140): there is no authorizer that would enforce them, so each is refused."""

from typing import Any, Final

from logboom.kafka.errors import NO_ACLS, SecurityDisabledError, error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 30


def handle(context: RequestContext, request: Any) -> Reply:
    """SECURITY_DISABLED for each."""
    cls = response_class(_API_KEY, context.api_version)
    refused = make(nested(cls, "results"), error_code=error_code(SecurityDisabledError(NO_ACLS)), error_message=NO_ACLS)
    return make(cls, throttle_time=milliseconds(0), results=(refused,) * len(request.creations))


HANDLER = Handler(api_key=_API_KEY, min_version=1, max_version=3, handle=handle)
