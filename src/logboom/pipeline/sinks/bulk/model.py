"""The keys that all sinks share that send requests, and their values in a plan.

Knows settings and plans. Must not know any particular server. Cheap to import: `pipeline check` does.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from pydantic import Field

from logboom.base.settings import DurationMs, Settings, SizeBytes
from logboom.base.units import MIB, SECOND_MS
from logboom.pipeline.plan.nodes import KeyRef, Sink
from logboom.pipeline.sinks.base import SinkModel, SinkReport

if TYPE_CHECKING:
    from logboom.pipeline.sinks.bulk.sender import Settings as SendSettings
    from logboom.pipeline.sinks.bulk.target import Target

_BYTES_MIN: Final = 1_000
_EVENTS_MAX: Final = 100_000
_ENV_NAME: Final = re.compile(r"[^=\s\0]+")


class BatchModel(Settings):
    """Limits of one request."""

    max_bytes: SizeBytes | None = Field(default=None, ge=_BYTES_MIN, le=256 * MIB)
    """Size before compression. A single larger event gets a request of its own."""

    max_events: int | None = Field(default=None, ge=1, le=_EVENTS_MAX)
    """Events in one request."""

    max_age: DurationMs = Field(default=2 * SECOND_MS, ge=100, le=3600 * SECOND_MS)
    """How long an event waits at most for others, while the sink is idle."""


class BulkModel(SinkModel):
    """Keys of sinks that send requests."""

    batch: BatchModel = BatchModel()
    """How much goes into one request."""

    concurrency: int | None = Field(default=None, ge=1, le=64)
    """Concurrent requests for each partition that the sink reads; fewer while the server is overloaded."""

    requests_per_second: float | None = Field(default=None, ge=0.001, le=10_000)
    """Limit of requests per second for the whole sink."""

    timeout: DurationMs = Field(default=30 * SECOND_MS, ge=100, le=3600 * SECOND_MS)
    """How long the server may send nothing during a request."""

    retry_for: DurationMs = Field(default=60 * SECOND_MS, ge=0, le=3600 * SECOND_MS)
    """How long a request is retried before the attempt at its batch fails."""


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """How a sink sends its requests."""

    max_bytes: int
    max_events: int
    max_age_ms: int
    concurrency: int
    requests_per_second: float | None = None
    timeout_ms: int
    retry_for_ms: int
    longer_ms: int = 0
    """Extra time that a request may take beyond its timeouts, for example for an acknowledgment."""

    def settings(self, tasks: int) -> SendSettings:
        """The settings of a task's sender; the rate limit is shared by `tasks`."""
        from logboom.pipeline.sinks.bulk.sender import Settings as SendSettings

        timeout_s = self.timeout_ms / SECOND_MS
        return SendSettings(
            concurrency=self.concurrency,
            per_second=None if self.requests_per_second is None else self.requests_per_second / tasks,
            retry_for_s=self.retry_for_ms / SECOND_MS,
            request_max_s=4 * timeout_s + self.longer_ms / SECOND_MS,
        )


class BulkSink(Sink, frozen=True, kw_only=True):
    """A sink that sends requests."""

    sending: Sending

    @abstractmethod
    def open_target(self, secrets: Mapping[str, str]) -> Target:
        """Opens the server's target, with the texts of its credentials by `KeyRef.id`."""

    @property
    def interval_ms(self) -> int:
        return self.sending.max_age_ms

    @property
    def batch_records_max(self) -> int:
        return 50_000  # some seconds of work for most servers


def sending_of(model: BulkModel, *, max_bytes: int, max_events: int, concurrency: int = 4) -> Sending:
    """The sending limits of a file, completed with the defaults of the server."""
    return Sending(
        max_bytes=model.batch.max_bytes or max_bytes,
        max_events=model.batch.max_events or max_events,
        max_age_ms=model.batch.max_age,
        concurrency=model.concurrency or concurrency,
        requests_per_second=model.requests_per_second,
        timeout_ms=model.timeout,
        retry_for_ms=model.retry_for,
    )


def secret_of(model: Settings, name: str, report: SinkReport, *, needed: bool = False) -> KeyRef | None:
    """The credential that the keys `NAME_env` and `NAME_file` of a model refer to; None if both are missing."""
    env, file = getattr(model, f"{name}_env"), getattr(model, f"{name}_file")
    if env is not None and file is not None:
        report.problem(f"{name}_file", f"needs one of {name}_env and {name}_file, not both")
    if env is not None and not _ENV_NAME.fullmatch(env):
        report.problem(f"{name}_env", f"{env!r} is not a valid name of an environment variable")
    if env is None and file is None:
        if needed:
            report.problem(f"{name}_env", f"is missing: name the credential with {name}_env or {name}_file")
        return None
    return KeyRef(env=env, file=file) if env is not None else KeyRef(file=file)
