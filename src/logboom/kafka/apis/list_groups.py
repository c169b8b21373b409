"""ListGroups: all groups of this broker, filtered by state (KIP-518) and type (KIP-848) on request."""

from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.groups import GroupOverview
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 16
_TYPE: Final = "classic"
"""The type of all groups here."""


def handle(context: RequestContext, request: Any) -> Reply:
    """List the groups that match. Names of states and types are compared without case, as in Kafka."""
    cls = response_class(_API_KEY, context.api_version)
    one = nested(cls, "groups")
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    groups: list[GroupOverview] = []
    error: LogboomError | None = None
    try:
        groups = context.broker.groups.overview()
    except LogboomError as refused:
        error = refused
    listed = tuple(
        make(
            one,
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=_TYPE,
        )
        for group in groups
        if (not states or group.state.lower() in states) and (not types or _TYPE in types)
    )
    return make(cls, throttle_time=milliseconds(0), error_code=error_code(error), groups=listed)


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=5, handle=handle)
