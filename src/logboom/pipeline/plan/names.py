"""The names of the pipeline's streams, headers and record keys. Knows only text."""

import re
from typing import Final

STREAM_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Kafka's rule for topic names (org.apache.kafka.common.internals.Topic), except for "." and ".."."""

NODE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}")
"""Names of sources, transforms, sinks, and of the outputs of a route."""

MAX_MESSAGE_BYTES_DEFAULT: Final = 1_048_588
"""Kafka's default of max.message.bytes, and ours: the largest batch that a stream accepts."""

HEADER_EVENT_ID: Final = "logboom-event-id"
"""Event id of a record that a pipeline wrote: an event keeps its id, however often it is written."""
HEADER_ORIGIN: Final = "logboom-origin"
"""`stream/partition/offset` of the record an event was made from."""
HEADER_PIPELINE: Final = "logboom-pipeline"
HEADER_REASON: Final = "logboom-dead-reason"
HEADER_STAGE: Final = "logboom-dead-stage"
HEADER_FORM: Final = "logboom-dead-form"
"""Kind of a dead letter's value: see FORM_*."""
HEADER_SOURCE: Final = "logboom-source"
HEADER_EDGE: Final = "logboom-edge"
"""Stream of the edge, if a sink could not deliver."""
HEADER_RETRY_OF: Final = "logboom-retry-of"
"""Header of records that `dead-letters retry` wrote: `stream/partition/offset` of the dead letter."""

FORM_RAW: Final = "raw"
"""The original record's bytes."""
FORM_EVENT: Final = "event"
"""The event as JSON. It was parsed and perhaps masked, so the original bytes are not stored."""
HEADER_PART: Final = "logboom-dead-part"
"""Header of a dead letter that is too large for one record: number of the part and of all parts, as `2/3`."""

RETRY_KEY: Final = b"retry:"
"""In an edge's stream: prefix of the key of a retried record; the position of the dead letter follows."""

DIALS_STREAM: Final = "__pipeline_dials"
"""The compacted stream with the dial changes of all pipelines of a log."""

_BROKERS_OWN: Final = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
    "__advisories",
)
_BROKERS_PREFIX: Final = "__logboom"

REPIN_KEY: Final = b"repin:"
"""In an edge's stream: prefix of the key of records of a batch that was pinned to another plan after it had run.

Batch and generation follow. Such a batch may write other records to an edge than its first attempt, so the highest
offset of that attempt does not tell a reader which ones it has.
"""


def stream_name_problem(name: str) -> str | None:
    """What is wrong with the name of a stream; None if it may be used.

    >>> stream_name_problem("web"), stream_name_problem("..")
    (None, "'..' is not a valid name for a stream (letters, digits, '.', '_', '-'; at most 249)")
    """
    if STREAM_NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return f"{name!r} is not a valid name for a stream (letters, digits, '.', '_', '-'; at most 249)"


def written_stream_problem(name: str) -> str | None:
    """Why a sink may not write a stream with this name; None if it may. Brokers refuse such records.

    >>> written_stream_problem("__consumer_offsets"), written_stream_problem("__mine")
    ("'__consumer_offsets' is internal to the brokers, which take no records for it from a client", None)
    """
    if name in _BROKERS_OWN or name.startswith(_BROKERS_PREFIX):
        return f"{name!r} is internal to the brokers, which take no records for it from a client"
    return None


def edge_stream(pipeline: str, edge: str) -> str:
    """Internal stream: events that left by an edge, for the sinks that are delivered from there."""
    return f"_{pipeline}.{edge}"


def tick_stream(pipeline: str) -> str:
    """Internal stream: records that start a batch while no source has any. No edge has this name."""
    return f"_{pipeline}.-ticks"


def archived_stream(pipeline: str) -> str:
    """Internal stream: events of an archive for a replay. No edge has this name."""
    return f"_{pipeline}.-archived"


def dead_stream(pipeline: str, stage: str) -> str:
    """Dead letters of a transform or a sink."""
    return f"{pipeline}.dead.{stage}"


def made_stream(pipeline: str, transform: str) -> str:
    """The origin stream of events that a transform's state emits; no real stream has this name.

    >>> made_stream("shop", "latency")
    'shop:latency'
    """
    return f"{pipeline}:{transform}"


def is_made(stream: str) -> bool:
    """Whether the stream of an origin is a transform's state.

    >>> is_made("shop:latency"), is_made("web")
    (True, False)
    """
    return ":" in stream


def origin_text(stream: str, partition: int, offset: int) -> str:
    """A record's stream, partition and offset in one text.

    >>> origin_text("web", 0, 7)
    'web/0/7'
    """
    return f"{stream}/{partition}/{offset}"


def repin_key(batch: int, generation: int) -> bytes:
    """The key of an edge's records of a batch that was pinned again.

    >>> repin_key(7, 1)
    b'repin:7.1'
    """
    return REPIN_KEY + f"{batch}.{generation}".encode()


def parse_origin(text: str) -> tuple[str, int, int]:
    """The reverse of `origin_text`; ValueError for anything else.

    >>> parse_origin("web/0/7")
    ('web', 0, 7)
    """
    stream, partition, offset = text.rsplit("/", 2)
    return stream, int(partition), int(offset)


def whole_names_pattern(pattern: str) -> str:
    """A source's pattern for Spark, which would match parts of a name: `shop` would also read the pipeline's own
    `_shop.errors`.

    >>> whole_names_pattern("web|app")
    '^(?:web|app)$'
    """
    return f"^(?:{pattern})$"
