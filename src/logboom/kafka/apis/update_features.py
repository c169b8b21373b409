"""UpdateFeatures (KIP-584): there are no features whose level an administrator chooses, so every update is refused.

What Kafka ties to its `metadata.version` follows the program here: a newer one reads what an older one has written.
"""

from typing import Any, Final

from logboom.base.errors import InvalidUpdateVersionError, LogboomError
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 57
_WITHOUT_RESULTS: Final = 2


def handle(context: RequestContext, request: Any) -> Reply:
    """Refuse each feature; from version 2 on the request as a whole."""
    cls = response_class(_API_KEY, context.api_version)
    names = [one.feature for one in request.feature_updates]
    refused = [InvalidUpdateVersionError(f"there is no feature {name!r} here") for name in names]
    whole: LogboomError | None = None
    results: tuple[Any, ...] = ()
    if context.api_version >= _WITHOUT_RESULTS:
        whole = refused[0] if refused else None
    else:
        one_cls = nested(cls, "results")
        results = tuple(
            make(one_cls, feature=name, error_code=error_code(error), error_message=error_message(error))
            for name, error in zip(names, refused, strict=True)
        )
    return make(
        cls,
        throttle_time=milliseconds(0),
        error_code=error_code(whole),
        error_message=error_message(whole),
        results=results,
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle)
