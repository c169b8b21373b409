"""Settings of the HTTP server."""

from pydantic import Field

from logboom.base.settings import Address, DurationS, Settings


class HttpConfig(Settings):
    """Where metrics and health are served, and how many clients at a time."""

    listen: Address | None = "127.0.0.1:9644"
    """Address to listen on; port 0 asks the system for a free one, null turns the HTTP server off."""

    max_connections: int = Field(default=16, ge=1, le=1_024)
    """Open connections; one more is closed at once."""

    request_timeout_s: DurationS = Field(default=10.0, gt=0)
    """A connection is closed this long after it was opened, answered or not."""

    max_partition_series: int = Field(default=1_000, ge=0)
    """With more partitions than this, `/metrics` has series per stream instead of series per partition."""
