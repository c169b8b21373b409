"""AlterConfigs (KIP-133): replace all settings of a stream or a broker; those not named are reset to their defaults.

Kafka has deprecated it for IncrementalAlterConfigs; older clients still send it.
"""

from typing import Any, Final

from logboom.base.errors import InvalidRequestError
from logboom.broker.broker import Broker
from logboom.kafka.admin.altering import Changes, alter_all
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import response_class

_API_KEY: Final = 33


async def handle(context: RequestContext, request: Any) -> Reply:
    """Replace the settings of each resource."""
    return await alter_all(
        context.broker, request, response_class(_API_KEY, context.api_version), _changes, replace_all=True
    )


def _changes(broker: Broker, resource: Any) -> Changes:
    for config in resource.configs:
        if config.value is None:
            raise InvalidRequestError(f"the setting {config.name!r} has no value: leave it out to have its default")
    return {config.name: config.value for config in resource.configs}


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle, changes=True)
