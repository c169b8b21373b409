"""What this broker asks of the controller for its own partitions: new ISRs, and that lost replicas no longer count."""

import itertools
from collections.abc import Sequence

from logboom.base.errors import LogboomError, NotControllerError, OutcomeUnknownError
from logboom.base.ids import BrokerId, PartitionIndex, StreamId
from logboom.broker.control import commands
from logboom.broker.control.channel import ControlChannel
from logboom.broker.control.commands import Refusal
from logboom.broker.control.registration import Registration
from logboom.broker.metadata_state import MetadataState
from logboom.broker.peers import PeerUnavailableError
from logboom.metadata.leadership import IsrProposal


class PartitionControl:
    """See the module. Every request names the registration of this process, so that none of an earlier one counts."""

    def __init__(
        self, broker: BrokerId, channel: ControlChannel, registration: Registration, state: MetadataState
    ) -> None:
        self._broker = broker
        self._channel = channel
        self._registration = registration
        self._state = state

    async def change_isr(self, proposals: Sequence[IsrProposal]) -> list[LogboomError | None]:
        """The outcome of each proposal: None if it is committed, and this broker has applied it.

        Raises PeerUnavailableError if the outcome is not known, StaleBrokerEpochError if nothing was changed.
        """
        command = commands.ChangeIsr(
            broker=self._broker,
            epoch=self._registration.epoch,
            proposals=tuple(map(_proposal, proposals)),
        )
        try:
            refusals = await self._channel.submit(command, list[Refusal | None])
        except (OutcomeUnknownError, NotControllerError) as error:
            raise PeerUnavailableError(str(error)) from error
        return [None if one is None else one.error for one in refusals]

    async def replicas_lost(self, lost: Sequence[tuple[StreamId, PartitionIndex]]) -> None:
        """These replicas of this broker have none of their records: where others have them, they leave ISR and ELR."""
        while lost:
            command = commands.ReplicasLost(
                broker=self._broker,
                epoch=self._registration.epoch,
                lost=tuple(lost),
                partition_epochs=tuple(itertools.starmap(self._partition_epoch, lost)),
            )
            # Controllers of earlier builds answer nothing.
            refusals = await self._channel.submit(command, list[Refusal | None] | None) or [None] * len(lost)
            # Their partitions were changed meanwhile, which this broker has applied by now.
            lost = [one for one, refusal in zip(lost, refusals, strict=True) if refusal is not None]

    def _partition_epoch(self, stream_id: StreamId, index: PartitionIndex) -> int:
        known = self._state.image.assignment(stream_id, index)
        return -1 if known is None else known.partition_epoch


def _proposal(one: IsrProposal) -> commands.Proposal:
    isr = {int(broker): int(epoch) for broker, epoch in one.isr.items()}
    return commands.Proposal(one.stream, one.index, one.leader_epoch, one.partition_epoch, isr)
