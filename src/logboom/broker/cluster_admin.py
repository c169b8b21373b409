"""Commands on the cluster itself: where replicas are, who leads, which brokers belong to it, the metadata level.

Like the commands of `catalog`, each goes to the controller and returns once this broker has applied the change. Knows
no partition, no disk and no protocol.
"""

from collections.abc import Sequence

from logboom.broker.control import commands
from logboom.broker.control.channel import ControlChannel


class ClusterAdmin:
    """See the module. Life: that of the broker, on its loop."""

    def __init__(self, channel: ControlChannel) -> None:
        self._channel = channel

    async def reassign(self, name: str, index: int, replicas: Sequence[int] | None) -> None:
        """Move a partition to `replicas`; None cancels a move that is in progress. Returns when it has begun."""
        wanted = None if replicas is None else tuple(replicas)
        await self._channel.submit(commands.Reassign(name=name, index=index, replicas=wanted))

    async def elect(self, name: str, index: int, *, unclean: bool) -> None:
        """Make the preferred leader of a partition lead, or with `unclean` any replica if none is eligible."""
        await self._channel.submit(commands.Elect(name=name, index=index, unclean=unclean))

    async def drain_broker(self, broker: int, *, draining: bool) -> None:
        """Begin or end to drain a broker."""
        await self._channel.submit(commands.DrainBroker(broker=broker, draining=draining))

    async def unregister_broker(self, broker: int) -> None:
        """Forget a broker that is stopped and holds nothing."""
        await self._channel.submit(commands.UnregisterBroker(broker=broker))

    async def set_metadata_level(self, level: int, *, may_lower: bool, validate_only: bool) -> None:
        """Raise the metadata level of the cluster, or with `may_lower` lower it. Raises InvalidUpdateVersionError."""
        command = commands.SetMetadataLevel(level=level, may_lower=may_lower, validate_only=validate_only)
        await self._channel.submit(command)
