"""Client quotas: which entities can have one, what can be limited, and how quotas are changed (KIP-546).

Knows only names and rules. How a rate is measured and which client is throttled is decided where requests are served.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from logboom.base.errors import InvalidRequestError, PolicyViolationError
from logboom.metadata.limits import MetadataLimits
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
"""The protocol carries a quota as a double, which holds every whole number up to this one."""

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""What a quota is for: (type, name) pairs in the order of types; the name None is the default of the type."""

Quotas: TypeAlias = Mapping[str, float]
"""Values by Kafka's names of quotas."""


@dataclass(frozen=True, slots=True)
class QuotaKind:
    """One quota that can be set."""

    name: str
    entity_type: str
    doc: str
    fits: Callable[[float], bool]
    expected: str
    """What `fits` accepts, in words."""

    def check(self, value: float) -> float:
        """Return the value. Raises InvalidRequestError if it does not fit."""
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
        "Share of the time of the event loop, in percent.",
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
        raise InvalidRequestError("the request names no entity for the quota")
    if USER in types:
        raise InvalidRequestError(
            "quotas of users are not supported: this broker knows no users yet; set them by client-id"
        )
    unknown = sorted(set(types) - {CLIENT_ID, IP})
    if unknown:
        raise InvalidRequestError(f"{unknown[0]!r} is not a type of entity; known: {CLIENT_ID}, {IP}")
    if len(types) > 1:
        raise InvalidRequestError(f"a quota is for one {CLIENT_ID} or for one {IP}, not for {' and '.join(types)}")
    for kind, name in parts:
        if name == "":
            raise InvalidRequestError(f"the name of a {kind} is empty; the default has no name at all (null)")
        if name is not None and len(name) > _NAME_LENGTH_MAX:
            raise InvalidRequestError(f"the name of a {kind} has {len(name)} characters, at most {_NAME_LENGTH_MAX}")
    return tuple(parts)


def change_quotas(
    quotas: Mapping[QuotaEntity, Quotas],
    entity: QuotaEntity,
    changes: Mapping[str, float | None],
    limits: MetadataLimits,
) -> tuple[ClientQuotasChanged, ...]:
    """Set (or, with None, remove) quotas of an entity; `quotas` are those of all entities. No record if unchanged.

    Raises InvalidRequestError for a quota that the entity cannot have, PolicyViolationError above `quotas_max`.
    """
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


def apply_quotas(quotas: dict[QuotaEntity, Quotas], record: ClientQuotasChanged) -> None:
    """Apply a record to the quotas of all entities, in place."""
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
    """The value that applies to an entity: its own, else the default of its type, else None."""
    for entity in (((entity_type, name),), ((entity_type, None),)):
        value = quotas.get(entity, {}).get(quota)
        if value is not None:
            return value
    return None
