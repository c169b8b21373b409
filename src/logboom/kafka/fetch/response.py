"""Fetch responses, encoded by hand: the log's buffers, untouched, between a few bytes of the protocol.

The tests compare every version with kio's reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from logboom.kafka.errors import error_code
from logboom.kafka.fetch.sessions import NO_SESSION, SessionError
from logboom.kafka.wire import encoding
from logboom.kafka.wire.encoded import EncodedResponse

if TYPE_CHECKING:
    from logboom.base.ports import Bytes
    from logboom.kafka.cluster.current_leader import CurrentLeaders
    from logboom.kafka.fetch.partition_fetch import PartitionFetch

SESSION_ERRORS: Final = {
    SessionError.NOT_FOUND: ErrorCode.fetch_session_id_not_found,
    SessionError.WRONG_EPOCH: ErrorCode.invalid_fetch_session_epoch,
    SessionError.TOPIC_IDS: ErrorCode.fetch_session_topic_id_error,
}

_TOPIC: Final = attrgetter("position.topic")
_HEAD: Final = {False: Struct(">i"), True: Struct(">ihi")}
"""The header, by whether the version has sessions (7 and later): throttle time, error code, session id."""
_PART_V4: Final = Struct(">ihqqii")
_PART_V5: Final = Struct(">ihqqqii")
_PART_V11: Final = Struct(">ihqqqiii")
_PART_V12: Final = Struct(">ihqqqBi")
LEADER_TAG: Final = 1
"""Of a partition's current leader (KIP-951)."""
_WITH_LEADERS: Final = 16


def encode_session_error(version: int, code: ErrorCode, session_id: int = NO_SESSION) -> EncodedResponse:
    """A response that refuses the whole request; versions before 7 have no field for the code."""
    return EncodedResponse((bytes(_empty(version, 0, int(code), session_id)),))


def encode_throttled(version: int, throttle_ms: int, session_id: int) -> EncodedResponse:
    """A response without records that says how long to wait (KIP-219); the session stays as it is."""
    body = bytearray(_empty(version, throttle_ms, 0, session_id))
    return EncodedResponse((body,), throttle_at=0, throttle_ms=throttle_ms)


def _empty(version: int, throttle_ms: int, code: int, session_id: int) -> bytes:
    fields = (throttle_ms, code, session_id) if version >= 7 else (throttle_ms,)
    flexible = version >= 12
    return _HEAD[version >= 7].pack(*fields) + encoding.count(0, flexible=flexible) + (b"\0" if flexible else b"")


def encode_response(
    version: int,
    session_id: int,
    fetches: Sequence[PartitionFetch],
    *,
    committed_only: bool,
    leaders: CurrentLeaders | None = None,
) -> EncodedResponse:
    """The response body; `committed_only` is the request's isolation level, `leaders` are told with refusals, by
    versions that can."""
    flexible = version >= 12
    if version < _WITH_LEADERS:
        leaders = None
    pieces: list[Bytes] = []
    # `own` collects the protocol's bytes up to the next records, which become a piece of their own.
    own = bytearray(_HEAD[version >= 7].pack(*((0, 0, session_id) if version >= 7 else (0,))))
    topics = [(topic, list(parts)) for topic, parts in groupby(fetches, _TOPIC)]
    own += encoding.count(len(topics), flexible=flexible)
    for topic, parts in topics:
        own += encoding.uuid(topic) if version >= 13 else encoding.string(topic, flexible=flexible)
        own += encoding.count(len(parts), flexible=flexible)
        for fetch in parts:
            own += _partition_head(version, fetch, committed_only)
            if fetch.records:
                pieces += (own, fetch.records)
                own = bytearray()
            if flexible:
                own += b"\0" if leaders is None else _partition_tags(leaders, fetch)
        if flexible:
            own += b"\0"
    if flexible:
        own += b"\0" if leaders is None else leaders.endpoints()
    pieces.append(own)
    return EncodedResponse(pieces, throttle_at=0)


def _partition_tags(leaders: CurrentLeaders, fetch: PartitionFetch) -> bytes:
    if fetch.error is None:
        return b"\0"
    return leaders.tags(fetch.position.topic, fetch.position.index, fetch.error)


def _partition_head(version: int, fetch: PartitionFetch, committed_only: bool) -> bytes:
    index, end, start = fetch.position.index, fetch.high_watermark, fetch.log_start_offset
    code, length = error_code(fetch.error), len(fetch.records)
    # There are no transactions, so the last stable offset is the high watermark and nothing was aborted: an empty list
    # for a client that reads committed records, null for others, as Kafka answers.
    if version >= 12:
        head = _PART_V12.pack(index, code, end, end, start, 1 if committed_only else 0, fetch.read_replica)
        return head + encoding.uvarint(length + 1)
    aborted = 0 if committed_only else -1
    if version >= 11:
        return _PART_V11.pack(index, code, end, end, start, aborted, fetch.read_replica, length)
    if version >= 5:
        return _PART_V5.pack(index, code, end, end, start, aborted, length)
    return _PART_V4.pack(index, code, end, end, aborted, length)
