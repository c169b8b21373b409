"""The internal stream `__consumer_offsets`: its name, its settings, and who leads which of its partitions.

Who leads a partition of it coordinates the groups that are stored there.
"""

from collections.abc import Mapping
from typing import Final

from logboom.base.ids import NO_EPOCH, BrokerId, Epoch, StreamName
from logboom.broker.config import GroupsConfig
from logboom.metadata import Stream

OFFSETS_STREAM: Final = StreamName("__consumer_offsets")


def stream_settings(config: GroupsConfig) -> dict[str, str]:
    """The settings of the stream, by Kafka's names."""
    return {
        "cleanup.policy": "compact",
        "logboom.flush": "commit",
        "max.message.bytes": str(config.offsets_max_message_bytes),
        "message.timestamp.type": "CreateTime",
        # A segment that is written to is not compacted, and is loaded whole: smaller ones make a quick start.
        "segment.bytes": str(config.offsets_segment_bytes),
    }


def leaderships(stream: Stream | None, broker_id: BrokerId) -> Mapping[int, Epoch]:
    """The leader epochs of the partitions that a broker leads, by index.

    A stream from before assignments were written down is led by the one broker there is; its epochs are not in the
    image.
    """
    if stream is None:
        return {}
    if not stream.assignments:
        return dict.fromkeys(range(stream.partitions), NO_EPOCH)
    return {index: one.leader_epoch for index, one in enumerate(stream.assignments) if one.leader == broker_id}
