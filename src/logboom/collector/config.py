"""The settings of `collector.yaml`. Knows names, defaults and what fits together; opens nothing."""

import re
import socket
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from logboom.base.settings import Address, Bootstrap, DurationMs, Settings, SizeBytes
from logboom.base.units import GIB, KIB, MIB, SECOND_MS
from logboom.collector.joiner import JoinRule

STREAM_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
INPUT_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
MESSAGE_MAX_BYTES = 1_000_000
"""librdkafka's own bound of one record, and below the broker's."""

RECORD_OVERHEAD_BYTES = 16 * KIB
"""Room for key, headers and framing beside the line: a path has up to 4 KiB and stands there twice."""

FIXED_OPTIONS = {
    "acks": "every record waits for its commit",
    "request.required.acks": "every record waits for its commit",
    "bootstrap.servers": "set output.bootstrap",
    "metadata.broker.list": "set output.bootstrap",
    "delivery.report.only.error": "the checkpoint follows what was acknowledged",
    "delivery.timeout.ms": "the collector retries for as long as it takes",
    "enable.gapless.guarantee": "order is kept through errors",
    "enable.idempotence": "retries never repeat a record",
    "message.max.bytes": "set max_line_bytes of the input",
    "message.timeout.ms": "the collector retries for as long as it takes",
    "queue.buffering.max.kbytes": "set output.max_in_flight_bytes",
    "queue.buffering.max.messages": "set output.max_in_flight_bytes",
    "transactional.id": "the collector writes no transactions",
}
"""Options of librdkafka that are not the user's, and why."""


class WhenFull(StrEnum):
    """What a full buffer does with the next line."""

    BLOCK = "block"
    DROP_NEWEST = "drop_newest"


class Framing(StrEnum):
    """How records are separated on a stream socket."""

    NEWLINE = "newline"
    OCTET_COUNTED = "octet_counted"


class StartAt(StrEnum):
    """Where files are read from that were there before the collector's first start."""

    BEGINNING = "beginning"
    END = "end"


def invalid(message: str) -> PydanticCustomError:
    """An error whose text is shown as it is."""
    return PydanticCustomError("described", "{message}", {"message": message})


class MultilineConfig(Settings):
    """Joining of lines that belong to one event, such as a stack trace."""

    start: str
    """Regular expression (Python's `re`) that the first line of an event matches at its beginning."""
    max_lines: Annotated[int, Field(ge=1, le=100_000)] = 500
    """An event of this many lines is handed on; what follows begins another."""
    max_bytes: Annotated[SizeBytes, Field(ge=1, le=900 * KIB)] = 256 * KIB
    """An event is handed on before it grows above this."""
    idle_timeout_ms: DurationMs = SECOND_MS
    """An event is handed on when no line came for this long."""

    @field_validator("start")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern.encode())
        except re.error as error:
            raise invalid(f"is not a valid regular expression: {error}") from None
        return pattern

    def rule(self) -> JoinRule:
        """As the joiner takes it."""
        return JoinRule(re.compile(self.start.encode()), self.max_lines, self.max_bytes, self.idle_timeout_ms)


class BufferConfig(Settings):
    """The disk buffer of an input that cannot be read again."""

    max_bytes: Annotated[SizeBytes, Field(ge=8 * MIB, le=1024 * GIB)] = 256 * MIB
    """Bytes on disk, at most."""
    when_full: WhenFull = WhenFull.BLOCK
    """`block` lets the writer wait; `drop_newest` drops and counts lines until there is room."""


class _Input(Settings):
    stream: str | None = None
    """The stream that takes the lines; default: output.stream."""
    max_line_bytes: Annotated[SizeBytes, Field(ge=16, le=MESSAGE_MAX_BYTES - RECORD_OVERHEAD_BYTES)] = 256 * KIB
    """A longer line is cut into pieces of this size, each a record of its own."""
    multiline: MultilineConfig | None = None
    """Joins the lines of one event."""

    @field_validator("stream")
    @classmethod
    def _stream_name(cls, name: str | None) -> str | None:
        return None if name is None else check_stream_name(name)


class FileInputConfig(_Input):
    """Lines of files."""

    type: Literal["file"]
    include: Annotated[list[str], Field(min_length=1)]
    """Globs; `*` stops at a slash, `**` goes through directories."""
    exclude: list[str] = Field(default_factory=list)
    """Patterns of paths or file names that are left out. Compressed files always are."""
    start_at: StartAt = StartAt.BEGINNING
    """Where to begin in files that were there before the collector's first start; later files are read whole."""
    max_open_files: Annotated[int, Field(ge=1, le=100_000)] = 512
    """Handles held at the same time."""
    block_bytes: Annotated[SizeBytes, Field(ge=KIB, le=16 * MIB)] = 256 * KIB
    """How much of one file is read before the next one has its turn."""
    discover_ms: Annotated[DurationMs, Field(ge=10)] = 2 * SECOND_MS
    """How often the globs are looked through for new files."""
    rotate_wait_ms: DurationMs = 5 * SECOND_MS
    """How long a renamed or deleted file is read on after its last line."""


class StdinInputConfig(_Input):
    """Lines of the standard input."""

    type: Literal["stdin"]
    buffer: BufferConfig = Field(default_factory=BufferConfig)
    """The disk buffer."""


class UnixStreamInputConfig(_Input):
    """Lines from connections to a Unix stream socket."""

    type: Literal["unix_stream"]
    path: str
    """The socket's path."""
    mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] = "0660"
    """Who may connect, as file permissions in octal (in quotes)."""
    framing: Framing = Framing.NEWLINE
    """How records are separated: `newline`, or `octet_counted` as in RFC 6587."""
    max_connections: Annotated[int, Field(ge=1, le=10_000)] = 256
    """Connections at the same time; further ones wait to be accepted."""
    buffer: BufferConfig = Field(default_factory=BufferConfig)
    """The disk buffer."""


class UnixDatagramInputConfig(_Input):
    """One record per datagram of a Unix datagram socket."""

    type: Literal["unix_datagram"]
    path: str
    """The socket's path."""
    mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] = "0660"
    """Who may send, as file permissions in octal (in quotes)."""
    buffer: BufferConfig = Field(default_factory=BufferConfig)
    """The disk buffer."""

    @model_validator(mode="after")
    def _joins_nothing(self) -> "UnixDatagramInputConfig":
        if self.multiline is not None:
            raise invalid("multiline is not for datagrams: each one is a record")
        return self


BufferedInputConfig = StdinInputConfig | UnixStreamInputConfig | UnixDatagramInputConfig
InputConfig = Annotated[FileInputConfig | BufferedInputConfig, Field(discriminator="type")]


class ClientKind(StrEnum):
    """The client that sends to the broker."""

    AUTO = "auto"
    LIBRDKAFKA = "librdkafka"


class OutputConfig(Settings):
    """Where the lines go: any server that speaks the Kafka protocol."""

    bootstrap: Bootstrap = "127.0.0.1:9092"
    """One or more HOST:PORT, with commas between them."""
    stream: str | None = None
    """The stream of inputs that name none."""
    max_in_flight_bytes: Annotated[SizeBytes, Field(ge=MIB, le=4 * GIB)] = 32 * MIB
    """Bytes of lines on their way at most; when reached, reading waits."""
    client: ClientKind = ClientKind.AUTO
    """`auto` makes whole record batches and sends them itself, for a fraction of the work per line, unless `librdkafka`
    has options that only librdkafka knows (TLS, SASL and most others); `librdkafka` leaves all of it to librdkafka."""
    librdkafka: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Any other option of librdkafka, such as compression.type, linger.ms, security.protocol or sasl.username."""

    @field_validator("stream")
    @classmethod
    def _stream_name(cls, name: str | None) -> str | None:
        return None if name is None else check_stream_name(name)

    @field_validator("librdkafka")
    @classmethod
    def _not_ours(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name in options:
            if name in FIXED_OPTIONS:
                raise invalid(f"{name} cannot be set here: {FIXED_OPTIONS[name]}")
        return options


class CollectorConfig(Settings):
    """A collector: one process per host."""

    data_dir: str = "./logboom-collector"
    """Where checkpoints and buffers are kept; one collector at a time."""
    host: str = Field(default_factory=socket.gethostname)
    """The host's name in every record; default: the system's."""
    output: OutputConfig = Field(default_factory=OutputConfig)
    """Where the lines go."""
    inputs: Annotated[dict[str, InputConfig], Field(min_length=1)]
    """Where the lines come from, each input under a name of its own."""
    http: Address | None = None
    """HOST:PORT of /metrics; null for none."""
    checkpoint_ms: Annotated[DurationMs, Field(ge=1)] = SECOND_MS
    """How often positions are written down; lines acknowledged since the last time are sent again after a crash."""
    drain_ms: DurationMs = 10 * SECOND_MS
    """How long a stopping collector waits for acknowledgements."""

    @field_validator("inputs")
    @classmethod
    def _input_names(cls, inputs: dict[str, Any]) -> dict[str, Any]:
        for name in inputs:
            if not INPUT_NAME.fullmatch(name):
                raise invalid(f"{name!r} is not a valid name for an input: letters, digits, - and _ only")
        if sum(one.type == "stdin" for one in inputs.values()) > 1:
            raise invalid("there is one standard input, so one input of type stdin")
        paths = [
            one.path for one in inputs.values() if isinstance(one, UnixStreamInputConfig | UnixDatagramInputConfig)
        ]
        if twice := {path for path in paths if paths.count(path) > 1}:
            raise invalid(f"two inputs cannot share the socket {min(twice)}")
        return inputs

    @model_validator(mode="after")
    def _each_has_a_stream(self) -> "CollectorConfig":
        nameless = [name for name, one in self.inputs.items() if one.stream is None]
        if nameless and self.output.stream is None:
            raise invalid(f"no stream for {', '.join(nameless)}: set stream there, or output.stream for all")
        return self

    def stream_of(self, name: str) -> str:
        """The stream that takes an input's lines."""
        stream = self.inputs[name].stream or self.output.stream
        assert stream is not None
        return stream


def check_stream_name(name: str) -> str:
    """A name that a stream may have."""
    if not STREAM_NAME.fullmatch(name) or name in (".", ".."):
        raise invalid(f"{name!r} is not a valid name for a stream: up to 249 letters, digits, '.', '_' and '-'")
    return name
