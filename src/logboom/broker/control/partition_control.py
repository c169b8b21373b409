"""What this broker asks of the controller for its own partitions: other ISRs, and that lost replicas count no more."""

from collections.abc import Sequence

from logboom.base.errors import LogboomError, NotControllerError, OutcomeUnknownError
from logboom.base.ids import BrokerId, PartitionIndex, StreamId
from logboom.broker.control import commands
from logboom.broker.control.channel import ControlChannel
from logboom.broker.control.commands import Refusal
from logboom.broker.control.registration import Registration
from logboom.broker.peers import PeerUnavailableError
from logboom.metadata.leadership import IsrProposal


class PartitionControl:
    """See the module. Every request names the registration of this process, so that none of an earlier one counts."""

    def __init__(self, broker: BrokerId, channel: ControlChannel, registration: Registration) -> None:
        self._broker = broker
        self._channel = channel
        self._registration = registration

    async def change_isr(self, proposals: Sequence[IsrProposal]) -> list[LogboomError | None]:
        """What came of each proposal: None where it is committed, and this broker has applied it.

        Raises PeerUnavailableError where that is not known, StaleBrokerEpochError where nothing was changed.
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
        command = commands.ReplicasLost(broker=self._broker, epoch=self._registration.epoch, lost=tuple(lost))
        await self._channel.submit(command)


def _proposal(one: IsrProposal) -> commands.Proposal:
    isr = {int(broker): int(epoch) for broker, epoch in one.isr.items()}
    return commands.Proposal(one.stream, one.index, one.leader_epoch, one.partition_epoch, isr)
