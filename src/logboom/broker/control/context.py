"""What the commands of the controller work with: the image, the one way to change it, settings, chance.

One command runs at a time (`controller`), so the image does not change between the reading and the commit of one.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current, DynamicSettings
from logboom.base.ports import Clock, Ids
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.data_dir import Identity
from logboom.metadata import Image, MetadataLimits, MetadataRecord, Stream
from logboom.metadata.levels import check_written
from logboom.metadata.revisions import ModRevisions

Result = TypeVar("Result")


class InOrder(Protocol):
    """`Controller.in_order`: runs one change of the metadata after the other."""

    async def __call__(self, change: Callable[[], Awaitable[Result]]) -> Result: ...


class MetadataWriter(Protocol):
    """The metadata log, as the controller writes it."""

    @property
    def image(self) -> Image:
        """What is applied here."""

    @property
    def applied_index(self) -> int:
        """The last entry that is."""

    @property
    def revisions(self) -> ModRevisions:
        """Which entry changed what of the image last."""

    async def commit(self, records: Sequence[MetadataRecord]) -> None:
        """Commit the records as one entry; returns once the image has them.

        Raises NotControllerError or StorageError where they are not committed, OutcomeUnknownError where they may be.
        """


@dataclass(frozen=True, slots=True)
class ControlContext:
    """See the module."""

    writer: MetadataWriter
    config: Current[BrokerConfig]
    dynamic_settings: DynamicSettings
    identity: Identity
    ids: Ids
    clock: Clock
    log: FilteringBoundLogger
    revision: int | None = None
    """The entry of the metadata log up to which whoever sent the command knew the image. None where that does not
    matter: the controller's own changes, and commands that say by themselves what they rest on."""

    @property
    def image(self) -> Image:
        """The image in force."""
        return self.writer.image

    @property
    def limits(self) -> MetadataLimits:
        """The limits that commands keep."""
        config = self.config.now
        return MetadataLimits(
            partitions_max=config.max_partitions, streams_max=config.max_streams, quotas_max=config.max_quotas
        )

    def minimum_of(self, stream: Stream) -> int:
        """`min.insync.replicas` of a stream."""
        return self.config.now.stream_config(stream).min_insync_replicas

    def observers_of(self, stream: Stream) -> int:
        """`logboom.observers` of a stream."""
        return self.config.now.stream_config(stream).observers

    def checked(self, records: Sequence[MetadataRecord]) -> "ControlContext":
        """The context of a command which may commit these records, in several parts perhaps.

        Raises ConcurrentChangeError where something that they change was changed since `revision`: the command is late,
        or comes a second time.
        """
        if self.revision is None:
            return self
        self.writer.revisions.check(records, self.revision)
        return replace(self, revision=None)

    async def commit(self, records: Sequence[MetadataRecord]) -> None:
        """Commit the records, if there are any. Raises as `checked`."""
        self.checked(records)
        if records:
            check_written(self.image, tuple(records))
            await self.writer.commit(records)
