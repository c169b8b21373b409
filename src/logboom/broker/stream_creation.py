"""New streams: what a client wants, as commands for the controller; many of them in one.

Each stream of a command of its own costs a commit of the metadata, with a look at all partitions there are: a thousand
took half a minute on a busy machine.
"""

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from logboom.base.errors import LogboomError, UnknownStreamError
from logboom.base.ids import StreamName
from logboom.base.ports import Ids
from logboom.broker.control import commands
from logboom.broker.control.channel import ControlChannel
from logboom.broker.control.commands import CREATED_TOGETHER_MAX, Refusal
from logboom.broker.metadata_view import MetadataView
from logboom.metadata import Image, Stream, apply_all, decode_all
from logboom.metadata.levels import CREATE_STREAMS_FROM

_PARTITIONS_TOGETHER: Final = 500
_DEFAULT: Final = (None,)
"""What is counted where the controller chooses: one partition."""
_NO_CONFIG: Final[Mapping[str, str | None]] = MappingProxyType({})


class NewStream(NamedTuple):
    """A stream that is to be created. None is the broker's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str | None] = _NO_CONFIG
    assignments: Sequence[Sequence[int]] | None = None
    """The replicas of each partition, the preferred leader first."""


class StreamCreation:
    """See the module. Life: that of the catalog."""

    def __init__(self, channel: ControlChannel, metadata: MetadataView, ids: Ids) -> None:
        self._channel = channel
        self._metadata = metadata
        self._ids = ids

    async def create(self, wanted: NewStream, *, validate_only: bool = False) -> Stream:
        """`Catalog.create_stream`."""
        return await self._create(self._command(wanted, validate_only=validate_only))

    async def create_all(self, wanted: Sequence[NewStream]) -> list[Stream | LogboomError]:
        """`Catalog.create_streams`."""
        made = [self._command(one) for one in wanted]
        if self._metadata.image.level < CREATE_STREAMS_FROM:
            return [await _or_error(self._create(one)) for one in made]
        results: list[Stream | LogboomError] = []
        for some in _together(made):
            results += await self._create_together(some)
        return results

    async def _create(self, command: commands.CreateStream) -> Stream:
        planned = await self._channel.submit(command, bytes | None)
        return stream_after(self._metadata.image, command.name, planned)

    async def _create_together(self, some: Sequence[commands.CreateStream]) -> Sequence[Stream | LogboomError]:
        if len(some) == 1:
            return [await _or_error(self._create(some[0]))]
        try:
            refusals = await self._channel.submit(commands.CreateStreams(streams=tuple(some)), list[Refusal | None])
        except LogboomError as error:
            return [error.with_traceback(None)] * len(some)
        results: list[Stream | LogboomError] = []
        for one, refusal in zip(some, refusals, strict=True):
            try:
                results.append(
                    refusal.error if refusal is not None else stream_after(self._metadata.image, one.name, None)
                )
            except UnknownStreamError as error:
                results.append(error)
        return results

    def _command(self, wanted: NewStream, *, validate_only: bool = False) -> commands.CreateStream:
        assignments = wanted.assignments
        return commands.CreateStream(
            name=wanted.name,
            id=self._ids.uuid(),
            partitions=wanted.partitions,
            replication_factor=wanted.replication_factor,
            config=dict(wanted.config),
            assignments=None if assignments is None else tuple(map(tuple, assignments)),
            validate_only=validate_only,
        )


def _together(made: Iterable[commands.CreateStream]) -> Iterator[list[commands.CreateStream]]:
    """Those of one command after the other. A command has its time, whatever there is to be created."""
    some: list[commands.CreateStream] = []
    partitions = 0
    for one in made:
        some.append(one)
        partitions += one.partitions or len(one.assignments or _DEFAULT)
        if len(some) == CREATED_TOGETHER_MAX or partitions >= _PARTITIONS_TOGETHER:
            yield some
            some, partitions = [], 0
    if some:
        yield some


def stream_after(image: Image, name: str, planned: bytes | None) -> Stream:
    """The stream as it is in an image, or as it would be after records that were not committed. Raises
    UnknownStreamError."""
    if planned is not None:
        image = apply_all(image, decode_all(planned))
    try:
        return image.by_name[StreamName(name)]
    except KeyError:
        raise UnknownStreamError(f"the stream {name!r} was deleted meanwhile") from None


async def _or_error(creation: Awaitable[Stream]) -> Stream | LogboomError:
    try:
        return await creation
    except LogboomError as error:
        return error
