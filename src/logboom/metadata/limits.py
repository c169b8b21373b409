"""The limits that commands check before a change becomes a record. The shell takes them from its settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetadataLimits:
    """Upper bounds for the whole cluster, in pieces."""

    partitions_max: int
    streams_max: int
    quotas_max: int
