"""UpdateFeatures (KIP-584): the only feature is the metadata level of the cluster.

Kafka's `metadata.version` is something else: a feature of that name is not known here.

KIP-584 has an error for each feature, and Kafka 3 answered versions 0 and 1 with those. KIP-1022 introduced version 2,
which only has an error for the whole request, and Kafka 4 answers all versions in this way
(QuorumController.updateFeatures). Clients of versions 0 and 1 check the error of the whole request first.
"""

from typing import Any, Final

from logboom.base.errors import InvalidUpdateVersionError, LogboomError
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.metadata.levels import FEATURE

_API_KEY: Final = 57
_UPGRADE_TYPES_FROM: Final = 1
_WITHOUT_RESULTS: Final = 2
_UPGRADE: Final = 1


async def handle(context: RequestContext, request: Any) -> Reply:
    """Update all features, or none: the first error is that of the whole request, in every version.

    KIP-584 has an error for each feature, and Kafka 3 answered versions 0 and 1 with those. KIP-1022 brought version 2,
    which has the error of the request alone, and Kafka 4 answers all versions so (QuorumController.updateFeatures).
    Clients of versions 0 and 1 look for an error of the whole request first.
    """
    cls = response_class(_API_KEY, context.api_version)
    error = next(filter(None, (_fault(one.feature) for one in request.feature_updates)), None)
    for one in request.feature_updates:
        error = error or await _update(context, request, one)
    results: tuple[Any, ...] = ()
    if context.api_version < _WITHOUT_RESULTS and error is None:
        one_cls = nested(cls, "results")
        results = tuple(
            make(one_cls, feature=one.feature, error_code=error_code(None), error_message=None)
            for one in request.feature_updates
        )
    return make(
        cls,
        throttle_time=milliseconds(0),
        error_code=error_code(error),
        error_message=error_message(error),
        results=results,
    )


def _fault(name: str) -> LogboomError | None:
    if name == FEATURE:
        return None
    return InvalidUpdateVersionError(f"there is no feature {name!r} here; there is {FEATURE}")


async def _update(context: RequestContext, request: Any, one: Any) -> LogboomError | None:
    has_types = context.api_version >= _UPGRADE_TYPES_FROM
    may_lower = one.upgrade_type != _UPGRADE if has_types else one.allow_downgrade
    validate_only = has_types and request.validate_only
    try:
        await context.broker.cluster_admin.set_metadata_level(
            one.max_version_level, may_lower=may_lower, validate_only=validate_only
        )
    except LogboomError as error:
        return error
    return None


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle, changes=True)
