"""How many records a test's idempotent producer keeps open."""

from typing import Final

OPEN_MAX: Final = 5
"""Records that are not acked yet. With more, librdkafka 2.16 would poll without a pause until acks come: its idempotent
producer sends nothing behind five records, and yet wakes up at once for what is ready."""
