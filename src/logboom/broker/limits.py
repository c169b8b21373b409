"""How near the broker is to each of its limits, for `/metrics`."""

from collections.abc import Iterator

from logboom.base.limits import LimitUsage
from logboom.broker.broker import Broker


def broker_limit_hits(broker: Broker) -> dict[str, int]:
    """How often limits were reached that cause no error to a client."""
    return {"broker.max_open_log_files": broker.open_files.eviction_count}


def broker_limits(broker: Broker) -> Iterator[LimitUsage]:
    """Every limit with a usage; for a limit of each group, the usage of the group that is nearest to it."""
    config, streams = broker.config, broker.catalog.streams()
    groups, members = broker.groups.usage()
    yield LimitUsage("broker.max_partitions", config.max_partitions, sum(one.partitions for one in streams.values()))
    yield LimitUsage("broker.max_streams", config.max_streams, len(streams))
    yield LimitUsage("broker.max_quotas", config.max_quotas, len(broker.catalog.quotas))
    yield LimitUsage("broker.max_staged_bytes", config.max_staged_bytes, broker.flusher.staged_bytes)
    yield LimitUsage("broker.max_open_log_files", config.max_open_log_files, len(broker.open_files))
    yield LimitUsage("broker.conditions.memory_bytes", config.conditions.memory_bytes, broker.window_memory.held_bytes)
    yield LimitUsage("broker.message_ids.memory_bytes", config.message_ids.memory_bytes, broker.id_memory.held_bytes)
    yield LimitUsage("broker.groups.groups_max", config.groups.groups_max, groups)
    yield LimitUsage("broker.groups.members_max", config.groups.members_max, members)
