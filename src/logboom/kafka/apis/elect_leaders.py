"""ElectLeaders (KIP-183, KIP-460): preferred leaders lead again; or, on request, any replica leads a partition without
a leader.

An election of the second kind is unclean: records that only absent replicas have are lost.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.base.errors import ElectionNotNeededError, LogboomError
from logboom.base.ids import NO_BROKER
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 43
_WITH_TYPE: Final = 1
_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_PARALLEL: Final = 200
"""Commands of one request that the controller has before it at the same time: it makes one change of those that wait
for each other."""


async def handle(context: RequestContext, request: Any) -> Reply:
    """Elect in the partitions that are named, or in all that need it; each has its own result."""
    kind = request.election_type if context.api_version >= _WITH_TYPE else _PREFERRED
    if kind not in (_PREFERRED, _UNCLEAN):
        return make(
            response_class(_API_KEY, context.api_version),
            throttle_time=milliseconds(0),
            error_code=ErrorCode.invalid_request,
            replica_election_results=(),
        )
    everything = request.topic_partitions is None
    wanted = list(dict.fromkeys(_needed(context, kind) if everything else _named(request)))
    outcomes = await _elect(context, wanted, unclean=kind == _UNCLEAN)
    if everything:  # where none was needed any more, another request was quicker
        outcomes = {where: error for where, error in outcomes.items() if not isinstance(error, ElectionNotNeededError)}
    return _response(context, outcomes)


async def _elect(
    context: RequestContext, wanted: Sequence[tuple[str, int]], *, unclean: bool
) -> dict[tuple[str, int], LogboomError | None]:
    """The outcome of the election in each partition."""
    gate = asyncio.Semaphore(_PARALLEL)

    async def elected(name: str, index: int) -> LogboomError | None:
        async with gate:
            try:
                await context.broker.cluster_admin.elect(name, index, unclean=unclean)
            except LogboomError as refused:
                return refused
            return None

    outcomes = await asyncio.gather(*(elected(name, index) for name, index in wanted))
    return dict(zip(wanted, outcomes, strict=True))


def _response(context: RequestContext, outcomes: Mapping[tuple[str, int], LogboomError | None]) -> Reply:
    cls = response_class(_API_KEY, context.api_version)
    result_cls = nested(cls, "replica_election_results")
    results: dict[str, list[Any]] = {}
    for (name, index), error in outcomes.items():
        results.setdefault(name, []).append(
            make(
                nested(result_cls, "partition_result"),
                partition_id=index,
                error_code=context.code_of(error),
                error_message=error_message(error),
            )
        )
    return make(
        cls,
        throttle_time=milliseconds(0),
        error_code=error_code(None),
        replica_election_results=tuple(
            make(result_cls, topic=name, partition_result=tuple(parts)) for name, parts in results.items()
        ),
    )


def _named(request: Any) -> Iterator[tuple[str, int]]:
    for topic in request.topic_partitions:
        for index in topic.partitions:
            yield topic.topic, index


def _needed(context: RequestContext, kind: int) -> Iterator[tuple[str, int]]:
    """All partitions with another leader than the one to be elected, as far as this broker knows."""
    image = context.broker.catalog.image
    for stream in image:
        for index, one in enumerate(stream.assignments):
            if kind == _PREFERRED:
                needs = one.leader != one.preferred_leader
            else:
                needs = one.leader == NO_BROKER or not image.is_active(one.leader)
            if needs:
                yield stream.name, index


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle, changes=True)
