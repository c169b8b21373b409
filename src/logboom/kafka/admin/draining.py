"""`logboom.draining` among the settings of a broker: whether the broker is to hold no replicas any more.

Kafka's protocol has no request for this. It is a fact about a broker in the metadata of the cluster, not a setting of
the broker's process, so any broker accepts the change, even for one that is down. A drained broker gets no new
replicas; the tool that drains it moves those that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.base.errors import InvalidConfigError, InvalidRequestError
from logboom.base.ids import BrokerId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logboom.broker.broker import Broker

DRAINING: Final = "logboom.draining"
DRAINING_DOC: Final = "Whether the broker gets no new replicas, since it is to be emptied (`logboom cluster drain`)."
_VALUES: Final[Mapping[str | None, bool]] = {"true": True, "false": False, None: False}


def is_draining(broker: Broker) -> bool:
    """Whether this broker is being drained."""
    own = broker.catalog.image.brokers.get(broker.identity.broker_id)
    return own is not None and own.draining


async def change_draining(
    broker: Broker, name: str, changes: Mapping[str, str | None], *, replace_all: bool, validate_only: bool
) -> None:
    """Begin or end the draining of the broker `name`. Raises InvalidConfigError, InvalidRequestError."""
    if replace_all or set(changes) != {DRAINING}:
        raise InvalidConfigError(f"{DRAINING} must be changed without other settings, and with IncrementalAlterConfigs")
    value = changes[DRAINING]
    if value not in _VALUES:
        raise InvalidConfigError(f"{DRAINING} is true or false, not {value!r}")
    if not name.isdecimal() or BrokerId(int(name)) not in broker.catalog.image.brokers:
        raise InvalidRequestError(f"no broker is registered as {name!r}")
    if not validate_only:
        await broker.cluster_admin.drain_broker(int(name), draining=_VALUES[value])
