"""The partition of `__consumer_offsets` that holds a group, by Kafka's rule, so that its tools find it."""


def java_string_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 units, in 32-bit signed arithmetic.

    >>> java_string_hash("console-consumer-1")
    35782224
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (value * 31 + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of_group(group_id: str, partitions: int) -> int:
    """Kafka's `Utils.abs(groupId.hashCode()) % partitions`, where the absolute value of the smallest int is 0."""
    value = java_string_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
