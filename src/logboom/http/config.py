"""Settings of the HTTP door."""

from pydantic import Field

from logboom.base.settings import Address, DurationS, Settings


class HttpConfig(Settings):
    """Where metrics and health are asked for, and how much may be asked at one time."""

    listen: Address | None = "127.0.0.1:9644"
    """Address to listen on; port 0 asks the system for a free one, null leaves this door shut."""

    max_connections: int = Field(default=16, ge=1, le=1_024)
    """Connections at one time; one more is closed at once."""

    request_timeout_s: DurationS = Field(default=10.0, gt=0)
    """A connection is closed this long after it was opened, answered or not."""

    max_partition_series: int = Field(default=1_000, ge=0)
    """With more partitions than this, `/metrics` tells of each stream as a whole instead of each partition."""
