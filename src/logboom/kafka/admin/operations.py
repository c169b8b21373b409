"""The operations a client may use on a resource, as Metadata and the Describe APIs report them (KIP-430).

There is no authorizer, so every operation that the resource type supports is allowed, which is what Kafka without an
authorizer reports too (AclEntry.supportedOperations). The field holds one bit for each operation, at the position of
its code in Kafka's AclOperation.
"""

from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    """Kafka's AclOperation, as far as resources served here support it."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


OPERATIONS_NOT_REQUESTED: Final = -(2**31)
"""The field's value in a response to a request that does not include authorized operations."""

TOPIC_OPERATIONS: Final = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)

GROUP_OPERATIONS: Final = _bits(
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
)
"""The last two since Kafka 4.0, where groups have settings of their own (KIP-848)."""

CLUSTER_OPERATIONS: Final = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def authorized_operations(operations: int, *, requested: bool) -> int:
    """The field's value for a resource whose type supports `operations`."""
    return operations if requested else OPERATIONS_NOT_REQUESTED
