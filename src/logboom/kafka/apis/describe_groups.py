"""DescribeGroups: state, protocol, and members with their subscriptions and assignments."""

from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.groups import GroupDescription
from logboom.groups.errors import GroupIdNotFoundError
from logboom.kafka.admin.operations import GROUP_OPERATIONS, authorized_operations
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 15
_FIRST_WITH_NOT_FOUND: Final = 6
"""GROUP_ID_NOT_FOUND (KIP-1043); older versions report a group in state Dead."""


def handle(context: RequestContext, request: Any) -> Reply:
    """Describe each group, once however often it is named."""
    cls = response_class(_API_KEY, context.api_version)
    one = nested(cls, "groups")
    requested = getattr(request, "include_authorized_operations", False)
    operations = authorized_operations(GROUP_OPERATIONS, requested=requested)
    groups = tuple(_describe(context, one, group_id, operations) for group_id in dict.fromkeys(request.groups))
    return make(cls, throttle_time=milliseconds(0), groups=groups)


def _describe(context: RequestContext, cls: Any, group_id: str, operations: int) -> Entity:
    error: LogboomError | None = None
    group: GroupDescription | None = None
    try:
        group = context.broker.groups.describe(group_id)
        if group is None and context.api_version >= _FIRST_WITH_NOT_FOUND:
            error = GroupIdNotFoundError(f"there is no group {group_id!r}")
    except LogboomError as refused:
        error = refused
    if group is None:
        state = "Dead" if error is None or isinstance(error, GroupIdNotFoundError) else ""
        group = GroupDescription(group_id, state, "", "", ())
    one = nested(cls, "members")
    return make(
        cls,
        error_code=error_code(error),
        error_message=error_message(error),
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=tuple(
            make(
                one,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=operations,
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=6, handle=handle)
