"""DescribeUserScramCredentials (KIP-554): there are no users, so nobody has credentials.

Kafka's tools ask for them whenever they describe users, whose quotas they show beside.
"""

from collections import Counter
from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 50


def handle(context: RequestContext, request: Any) -> Reply:
    """No credentials; RESOURCE_NOT_FOUND for each user that is named."""
    cls = response_class(_API_KEY, context.api_version)
    one = nested(cls, "results")
    named = Counter(user.name for user in request.users or ())
    results = tuple(
        make(
            one,
            user=name,
            error_code=ErrorCode.resource_not_found if times == 1 else ErrorCode.duplicate_resource,
            error_message=f"no user is named {name!r}" if times == 1 else f"the request names {name!r} more than once",
            credential_infos=(),
        )
        for name, times in named.items()
    )
    return make(cls, throttle_time=milliseconds(0), error_code=ErrorCode.none, error_message=None, results=results)


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=0, handle=handle)
