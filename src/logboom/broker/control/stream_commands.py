"""The controller's commands on streams, settings, quotas and producer ids.

Each reads the image, has `logboom.metadata` make the records, commits them, and gives the value that it is answered
with. They raise what the functions of `logboom.metadata` raise.
"""

import asyncio
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import UUID

from logboom.base.errors import InvalidConfigError, LogboomError
from logboom.base.ids import StreamId, StreamName
from logboom.broker.control import commands
from logboom.broker.control.commands import Refusal
from logboom.broker.control.context import ControlContext
from logboom.metadata import (
    CreateStream,
    Image,
    MetadataRecord,
    QuotaEntity,
    StreamCreated,
    add_partitions,
    allocate_producer_ids,
    apply,
    apply_all,
    apply_quotas,
    change_broker_config,
    change_config,
    change_quotas,
    create_stream,
    delete_stream,
    encode_all,
    replication_factor_max,
)
from logboom.metadata.leadership import forget_eligible
from logboom.metadata.observers import OBSERVERS, reconfigured

_PARTITIONS_PER_COMMIT: Final = 500
_QUOTAS_PER_TURN: Final = 500
_QUOTAS_PER_COMMIT: Final = 500
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


async def create(context: ControlContext, command: commands.CreateStream) -> bytes | None:
    """The records, where nothing is committed; None where the stream is there, by this command or by its repetition."""
    records = _creation(context, context.image, command, context.image.tombstones)
    if command.validate_only:
        return encode_all(records)
    await _commit_created(context, records)
    return None


async def create_many(context: ControlContext, command: commands.CreateStreams) -> list[Refusal | None]:
    """Create what can be created, `_PARTITIONS_PER_COMMIT` in a commit.

    Every broker makes the directories, roles and fetches of a commit in one go. Ten thousand partitions at once would
    cost a broker its lease, and the controller its controllership before it has committed them.
    """
    image, records = context.image, list[StreamCreated]()
    deleted = frozenset(image.tombstones)
    results: list[Refusal | None] = []
    for one in command.streams:
        await asyncio.sleep(0)  # each looks at all partitions there are; connections get their turn
        try:
            made = _creation(context, image, one, deleted)
        except LogboomError as error:
            results.append(Refusal.of(error))
            continue
        image = apply_all(image, made)
        records += made
        results.append(None)
        if sum(stream.partitions for stream in records) >= _PARTITIONS_PER_COMMIT:
            await _commit_created(context, records)
            image, records = context.image, []
    await _commit_created(context, records)
    return results


def _creation(
    context: ControlContext, image: Image, command: commands.CreateStream, deleted: Container[UUID]
) -> tuple[StreamCreated, ...]:
    """The record of a new stream; none where it is there, by this command or by its repetition, or was there. A
    connection may bring the first of two late, when the stream was made by the second and deleted."""
    there = image.by_name.get(StreamName(command.name))
    if command.id in deleted or (there is not None and there.id == command.id):
        return ()
    partitions = command.partitions
    if partitions is None:
        named = command.assignments
        partitions = context.config.now.default_partitions if named is None else len(named)
    wanted = CreateStream(
        name=command.name,
        partitions=partitions,
        replication_factor=_replication_factor(context, command.replication_factor),
        config=command.config,
        assignments=command.assignments,
        observers=_observers_of_new(context, command.config),
    )
    return create_stream(image, wanted, StreamId(command.id), context.limits)


async def _commit_created(context: ControlContext, records: Sequence[StreamCreated]) -> None:
    await context.commit(records)
    for one in records:
        context.log.info("stream created", stream=one.name, id=str(one.id), partitions=one.partitions)


async def ensure(context: ControlContext, command: commands.EnsureStream) -> None:
    """Create an internal stream where there is none."""
    if StreamName(command.name) in context.image.by_name or command.id in context.image.tombstones:
        return
    wanted = CreateStream(
        name=command.name,
        partitions=command.partitions,
        replication_factor=min(command.replication_factor, replication_factor_max(context.image.brokers)),
        config=command.config,
        internal=True,
    )
    await context.commit(create_stream(context.image, wanted, StreamId(command.id), context.limits))
    context.log.info("stream created", stream=command.name, id=str(command.id), partitions=command.partitions)


async def grow(context: ControlContext, command: commands.AddPartitions) -> bytes | None:
    """The records, where nothing is committed."""
    there = context.image.by_name.get(StreamName(command.name))
    records = add_partitions(
        context.image,
        command.name,
        command.total,
        context.limits,
        command.assignments,
        observers=0 if there is None else context.observers_of(there),
    )
    if command.validate_only:
        return encode_all(records)
    await context.commit(records)
    context.log.info("partitions added", stream=command.name, partitions=command.total)
    return None


async def configure(context: ControlContext, command: commands.ChangeStreamConfig) -> None:
    """Change settings of a stream."""
    records = change_config(
        context.image, command.name, command.changes, replace_all=command.replace_all, internal=command.internal
    )
    if not records:
        return
    after = apply_all(context.image, records)
    wanted = command.changes.get(OBSERVERS)
    observers = reconfigured(after, command.name, wanted, context.observers_of, context.minimum_of)
    after = apply_all(after, observers)
    committing = forget_eligible(after, (after.by_name[StreamName(command.name)],), context.minimum_of)
    if not command.validate_only:
        await context.commit([*records, *observers, *committing])
        context.log.info("stream settings changed", stream=command.name, settings=records[0].config)


async def delete(context: ControlContext, command: commands.DeleteStream) -> None:
    """Delete a stream."""
    records = delete_stream(context.image, command.name, None if command.id is None else StreamId(command.id))
    await context.commit(records)
    context.log.info("stream deleted", stream=command.name, id=str(records[0].id))


async def configure_broker(context: ControlContext, command: commands.ChangeBrokerConfig) -> None:
    """Change settings of a broker, or of all."""
    there = context.image.broker_configs.get(command.broker, _NO_SETTINGS)
    normal = context.dynamic_settings.normal(command.changes, there)
    records = change_broker_config(context.image, command.broker, normal, replace_all=command.replace_all)
    if not records:
        return
    after = apply(context.image, records[0])
    context.dynamic_settings.check(*settings_layers(after, command.broker or str(context.identity.broker_id)))
    if not command.validate_only:
        await context.commit(records)
        context.log.info("broker settings changed", broker=command.broker or "all", settings=records[0].config)


async def change_client_quotas(context: ControlContext, command: commands.ChangeQuotas) -> list[Refusal | None]:
    """Change quotas of each entity by itself."""
    quotas, records = dict(context.image.quotas), list[MetadataRecord]()
    results: list[Refusal | None] = []
    for number, one in enumerate(command.wanted):
        if number % _QUOTAS_PER_TURN == 0:
            await asyncio.sleep(0)  # a request may name a hundred thousand; connections get their turn
        entity: QuotaEntity = one.entity
        try:
            made = change_quotas(quotas, entity, one.changes, context.limits)
        except LogboomError as error:
            results.append(Refusal.of(error))
            continue
        for record in made:
            apply_quotas(quotas, record)
            records.append(record)
        results.append(None)
    if not command.validate_only:
        context = context.checked(records)
        for start in range(0, len(records), _QUOTAS_PER_COMMIT):
            await context.commit(records[start : start + _QUOTAS_PER_COMMIT])
    return results


async def allocate(context: ControlContext, command: commands.AllocateProducerIds) -> int:
    """The first of the ids."""
    first = context.image.next_producer_id
    await context.commit(allocate_producer_ids(context.image, command.count))
    return first


def settings_layers(image: Image, broker: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What was set at run time for one broker, and for all brokers."""
    configs = image.broker_configs
    return configs.get(broker, _NO_SETTINGS), configs.get("", _NO_SETTINGS)


def _replication_factor(context: ControlContext, wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    return min(context.config.now.default_replication_factor, replication_factor_max(context.image.brokers))


def _observers_of_new(context: ControlContext, config: Mapping[str, str | None]) -> int:
    """`logboom.observers` for a stream with these settings; 0 where they are refused anyway."""
    given = {name: value for name, value in config.items() if name == OBSERVERS and value is not None}
    try:
        observers: int = context.config.now.stream_defaults.stream_config.with_overrides(given).observers
    except InvalidConfigError:
        return 0
    return observers
