"""Quotas of clients: for whom there can be one, what can be bounded, and how one is changed (KIP-546).

Knows names and rules alone. How a rate is measured and who is made to wait is the Kafka door's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from logboom.base.errors import InvalidRequestError, PolicyViolationError
from logboom.metadata.limits import Limits
from logboom.metadata.records import ClientQuotasChanged

CLIENT_ID: Final = "client-id"
IP: Final = "ip"
USER: Final = "user"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_NAME_LENGTH_MAX: Final = 1_024
_RATE_MAX: Final = 2**53
"""Up to here a double, which is what the protocol carries, counts one by one."""

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: (type, name) in the order of types; None is the default of the type."""

Quotas: TypeAlias = Mapping[str, float]
"""Kafka's names of quotas and their values."""


@dataclass(frozen=True, slots=True)
class QuotaKind:
    """One quota that can be set."""

    name: str
    entity_type: str
    doc: str
    fits: Callable[[float], bool]
    expected: str

    def check(self, value: float) -> float:
        """The value, if it is one. Raises InvalidRequestError."""
        if not (math.isfinite(value) and self.fits(value)):
            raise InvalidRequestError(f"{self.name}={value:g}: expected {self.expected}")
        return value


def _is_rate(value: float) -> bool:
    return 1 <= value <= _RATE_MAX and value == int(value)


QUOTA_KINDS: Final[tuple[QuotaKind, ...]] = (
    QuotaKind(
        PRODUCER_BYTE_RATE,
        CLIENT_ID,
        "Bytes of produce requests in a second.",
        _is_rate,
        "a whole number of bytes in a second, 1 or more",
    ),
    QuotaKind(
        CONSUMER_BYTE_RATE,
        CLIENT_ID,
        "Bytes of fetch replies in a second.",
        _is_rate,
        "a whole number of bytes in a second, 1 or more",
    ),
    QuotaKind(
        REQUEST_PERCENTAGE,
        CLIENT_ID,
        "Share of the time of the thread that speaks the protocol, in percent.",
        lambda value: 0 < value <= _RATE_MAX,
        "a share in percent above 0",
    ),
    QuotaKind(
        CONNECTION_CREATION_RATE,
        IP,
        "Connections from one address in a second.",
        _is_rate,
        "a whole number of connections in a second, 1 or more",
    ),
)
_KINDS: Final = {kind.name: kind for kind in QUOTA_KINDS}


def quota_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of some (type, name) pairs. Raises InvalidRequestError for one that cannot have a quota here."""
    types = [kind for kind, _ in parts]
    if not parts:
        raise InvalidRequestError("a quota is for somebody: the request names no entity")
    if USER in types:
        raise InvalidRequestError(
            "quotas of users are not served: this broker knows no users yet; set them by client-id"
        )
    unknown = sorted(set(types) - {CLIENT_ID, IP})
    if unknown:
        raise InvalidRequestError(f"{unknown[0]!r} is no type of entity; known: {CLIENT_ID}, {IP}")
    if len(types) > 1:
        raise InvalidRequestError(f"a quota is for one {CLIENT_ID} or for one {IP}, not for {' and '.join(types)}")
    for kind, name in parts:
        if name == "":
            raise InvalidRequestError(f"the name of a {kind} is empty; the default has no name at all (null)")
        if name is not None and len(name) > _NAME_LENGTH_MAX:
            raise InvalidRequestError(f"the name of a {kind} has {len(name)} characters, at most {_NAME_LENGTH_MAX}")
    return tuple(parts)


def change_quotas(
    quotas: Mapping[QuotaEntity, Quotas], entity: QuotaEntity, changes: Mapping[str, float | None], limits: Limits
) -> tuple[ClientQuotasChanged, ...]:
    """Set (or, with None, remove) quotas of an entity beside those there are; no record where nothing changes."""
    ((entity_type, _),) = entity
    before = quotas.get(entity, {})
    after = dict(before)
    for name, value in changes.items():
        kind = _kind(name, entity_type)
        if value is None:
            after.pop(name, None)
        else:
            after[name] = kind.check(value)
    if after == before:
        return ()
    if not before and len(quotas) >= limits.quotas_max:
        raise PolicyViolationError(
            f"{len(quotas)} entities have quotas and max_quotas is {limits.quotas_max}", limit="broker.max_quotas"
        )
    return (ClientQuotasChanged(entity=dict(entity), quotas=after),)


def take_quotas(quotas: dict[QuotaEntity, Quotas], record: ClientQuotasChanged) -> None:
    """Make of all quotas there are what a record says."""
    entity = tuple(sorted(record.entity.items()))
    quotas.pop(entity, None)
    if record.quotas:
        quotas[entity] = MappingProxyType(dict(record.quotas))


def _kind(name: str, entity_type: str) -> QuotaKind:
    kind = _KINDS.get(name)
    if kind is None or kind.entity_type != entity_type:
        known = ", ".join(kind.name for kind in QUOTA_KINDS if kind.entity_type == entity_type)
        raise InvalidRequestError(f"{name!r} is no quota for {entity_type}; known: {known}")
    return kind


def quota_for(quotas: Mapping[QuotaEntity, Quotas], entity_type: str, name: str, quota: str) -> float | None:
    """What bounds somebody: their own quota, else the default of their type, each quota by itself."""
    for entity in (((entity_type, name),), ((entity_type, None),)):
        value = quotas.get(entity, {}).get(quota)
        if value is not None:
            return value
    return None
