"""The pipeline's YAML as settings: which keys there are and which values they take, each part on its own.

It knows one part at a time. It must not know names, graphs or patterns: whatever needs two parts to judge belongs to
the compiler.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from logboom.base.settings import Bootstrap, DurationMs, Settings, Texts


class BatchModel(Settings):
    """How much is taken at once."""

    max_records: int = Field(default=500_000, ge=1)
    """Records of all sources together in one batch."""

    interval: DurationMs = Field(default=1_000, ge=0)
    """Time between the starts of two batches; a longer batch is followed by the next at once."""


class PipelineModel(Settings):
    """The document; its parts are loaded one by one so that a fault in one hides none in another."""

    name: str
    """Name of the pipeline: of its checkpoint, its route streams and its dead letters."""

    bootstrap: Bootstrap | None = None
    """Brokers, `HOST:PORT,...`; `--bootstrap` and LOGBOOM_BOOTSTRAP win."""

    checkpoint: str | None = None
    """Directory for what must survive a restart; default `./checkpoints/NAME`."""

    patterns: dict[str, str] = Field(default_factory=dict)
    """Names of your own for `%{NAME}`."""

    batch: BatchModel = Field(default_factory=BatchModel)
    """How much is taken at once."""

    sources: dict[str, Any] = Field(default_factory=dict)
    """Where records come from."""

    transforms: dict[str, Any] = Field(default_factory=dict)
    """What is done to them."""

    sinks: dict[str, Any] = Field(default_factory=dict)
    """Where events go."""

    tests: list[Any] = Field(default_factory=list)
    """Examples that `pipeline test` runs."""


class StreamSourceModel(Settings):
    """Records of one or more streams; one of `stream`, `streams` and `pattern`."""

    type: Literal["stream"]
    stream: str | None = None
    """One stream."""

    streams: list[str] = Field(default_factory=list)
    """Several streams."""

    pattern: str | None = None
    """All streams whose whole name matches this regular expression."""

    start: Literal["earliest", "latest"] = "earliest"
    """Where a pipeline without a checkpoint begins."""

    on_data_loss: Literal["fail", "continue"] = "fail"
    """What to do when records went away before they were read."""


class SeverityModel(Settings):
    """How severities are read."""

    texts: dict[str, int | str] = Field(default_factory=dict)
    """Own words, to an OpenTelemetry number (1-24) or its short name (`ERROR2`)."""

    numbers: Literal["otel", "syslog", "pino", "python", "http"] | None = None
    """What a severity that is a number means."""


class RuleModel(Settings):
    """One way to read lines."""

    format: str
    """What the lines look like."""

    name: str | None = None
    """Name in reasons of dead letters; default: the format."""

    source: str | None = None
    """Only records of this source."""

    when: str | None = None
    """Only records for which this SQL condition over the raw record is true."""

    pattern: Texts | None = None
    """For `pattern`: one expression, or several of which the first that matches wins."""

    columns: list[str] | None = None
    """For `csv`: names of the columns."""

    delimiter: str | None = None
    """For `csv`: what stands between values; default `,`."""

    pair_separator: str | None = None
    """For `key_value`: what stands between pairs; default a blank."""

    key_value_separator: str | None = None
    """For `key_value`: what stands between key and value; default `=`."""

    time_format: Texts | None = None
    """How the time is written; a line whose time is not so written is not parsed. Default: common forms."""

    timezone: str | None = None
    """Zone of times that name none; default UTC."""

    map: dict[str, Texts] = Field(default_factory=dict)
    """Field of the event: name, or names of which the first present wins, in the line."""

    defaults: dict[str, str] = Field(default_factory=dict)
    """Field of the event: text where the line has none."""

    severity: SeverityModel = Field(default_factory=SeverityModel)
    """How severities are read."""

    body_format: Literal["json", "logfmt"] | None = None
    """Read the body once more, where it parses as this."""


class TransformModel(Settings):
    """What every transform has."""

    inputs: Texts
    """Names of what it reads; `*` stands for any characters."""


class ParseModel(TransformModel):
    """Lines to events."""

    type: Literal["parse"]
    rules: list[RuleModel] = Field(min_length=1)
    """Tried in order; the first that applies and parses wins."""

    otherwise: Literal["dead", "keep"] = "dead"
    """What happens to a line no rule reads."""

    blank_lines: Literal["dead", "drop", "keep"] = "dead"
    """What happens to a line of blanks alone: to the dead letters, dropped and counted, or an event without a body."""


class FilterModel(TransformModel):
    """Keeps what the condition is true of."""

    type: Literal["filter"]
    condition: str


class MaskRuleModel(Settings):
    """One detector and what to do with what it finds."""

    kind: Literal["email", "ipv4", "ipv6", "card", "token", "pattern"]
    action: Literal["hash", "redact", "keep_last"] = "redact"
    name: str | None = None
    """Name of its count and in its replacement; default: the kind."""

    pattern: str | None = None
    """For kind `pattern`: RE2 with `%{NAME}`. A group named `secret`, or the only group, is what is replaced."""

    keep: int | None = Field(default=None, ge=1, le=8)
    """For `keep_last`: how many characters stay; default 4."""

    replacement: str | None = None
    """For `redact`: text instead of `[NAME]`."""


class MaskModel(TransformModel):
    """Replaces secrets."""

    type: Literal["mask"]
    rules: list[MaskRuleModel] = Field(min_length=1)
    fields: Texts = Field(default_factory=lambda: ["body", "attributes"], min_length=1)
    """`attributes` for all of them, `attributes.NAME` for one, or text fields of the event."""

    key_env: str | None = None
    """Environment variable that holds the key of `hash`."""

    key_file: str | None = None
    """File that holds the key of `hash`; a relative path is beside the pipeline's file."""


class SampleModel(TransformModel):
    """Keeps a part."""

    type: Literal["sample"]
    rate: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """Keep one in so many."""

    ratio: float | None = Field(default=None, gt=0, le=1)
    """Keep this part."""

    key: str = "trace_id"
    """Events with the same key share one fate."""

    exclude: str | None = None
    """Always keep what this is true of."""


class RouteModel(TransformModel):
    """One output for each condition, and `unmatched`."""

    type: Literal["route"]
    routes: dict[str, str] = Field(min_length=1)


class TestInputModel(Settings):
    """One record given to a source."""

    __test__ = False

    source: str
    value: str | None
    key: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    timestamp: str | None = None
    """RFC 3339; default: the moment the test runs."""


class TestExpectModel(Settings):
    """What must be found where."""

    __test__ = False

    at: str
    fields: dict[str, Any] = Field(default_factory=dict)
    condition: str | None = None
    count: int | None = Field(default=None, ge=0)


def _records(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class TestModel(Settings):
    """One example."""

    __test__ = False

    name: str
    input: Annotated[list[TestInputModel], BeforeValidator(_records), Field(min_length=1)]
    expect: Annotated[list[TestExpectModel], BeforeValidator(_records), Field(min_length=1)]


SOURCES: Final[dict[str, type[Settings]]] = {"stream": StreamSourceModel}
TRANSFORMS: Final[dict[str, type[Settings]]] = {
    "parse": ParseModel,
    "filter": FilterModel,
    "mask": MaskModel,
    "sample": SampleModel,
    "route": RouteModel,
}
