"""The pipeline's YAML as settings: the keys of the document, its sources and its tests, and their allowed values.

The keys of transforms, formats and sinks are in their own files. This module knows one part at a time. It must not know
names, graphs or patterns: rules about several parts belong to the compiler.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from logboom.base.settings import Bootstrap, DurationMs, Settings, Texts


class BatchModel(Settings):
    """Limits of a batch."""

    max_records: int = Field(default=500_000, ge=1, le=10**15)
    """Records of all sources together in one batch."""

    interval: DurationMs = Field(default=1_000, ge=0, le=86_400_000)
    """Time between the starts of two batches; after a longer batch the next one starts immediately."""


class CheckpointPlace(Settings):
    """A directory, or a bucket and a working directory of this machine."""

    path: str
    """A directory, or `s3://BUCKET/PREFIX`, `gs://...`, `abfss://CONTAINER@ACCOUNT.../PREFIX`."""

    endpoint: str | None = None
    """Address of the server, `http://HOST:PORT`, if `path` is an s3:// URL of a server other than Amazon's."""

    region: str | None = None
    """Region of an s3:// bucket; default: the region in the environment, else `us-east-1`."""

    work_dir: str | None = None
    """Directory for the files of a checkpoint in a bucket, which may be lost; default: below `~/.cache/logboom`."""


def _place(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


CheckpointModel = Annotated[CheckpointPlace, BeforeValidator(_place)]


class PipelineModel(Settings):
    """The document. Its parts are loaded one by one, so that a fault in one part does not hide faults in others."""

    include: Texts = Field(default_factory=list)
    """Files with more patterns, sources, transforms, sinks and tests; `*` stands for any characters of a name."""

    name: str
    """Name of the pipeline: of its checkpoint, its route streams and its dead letters."""

    bootstrap: Bootstrap | None = None
    """Brokers, `HOST:PORT,...`; `--bootstrap` and LOGBOOM_BOOTSTRAP take precedence."""

    checkpoint: CheckpointModel | None = None
    """Where the state that must survive a restart is kept; a path alone means `{path: ...}`; default
    `./checkpoints/NAME`."""

    patterns: dict[str, str] = Field(default_factory=dict)
    """Your own patterns for `%{NAME}`."""

    batch: BatchModel = Field(default_factory=BatchModel)
    """Limits of a batch."""

    sources: dict[str, Any] = Field(default_factory=dict)
    """Where records come from."""

    transforms: dict[str, Any] = Field(default_factory=dict)
    """What is done to them."""

    sinks: dict[str, Any] = Field(default_factory=dict)
    """Where events go."""

    tests: list[Any] = Field(default_factory=list)
    """Examples that `pipeline test` runs."""


class StreamSourceModel(Settings):
    """Records of one or more streams; give one of `stream`, `streams` and `pattern`."""

    type: Literal["stream"]
    stream: str | None = None
    """One stream."""

    streams: list[str] = Field(default_factory=list)
    """Several streams."""

    pattern: str | None = None
    """All streams whose whole name matches this regular expression."""

    start: Literal["earliest", "latest"] = "earliest"
    """Where a pipeline without a checkpoint starts reading."""

    on_data_loss: Literal["fail", "continue"] = "fail"
    """What to do if records were deleted before they were read."""


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
    """An expected result: what must be at which place."""

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
