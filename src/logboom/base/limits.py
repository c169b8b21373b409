"""The usage of a limit, for `/metrics`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """One limit and how much of it is used now, in the limit's own unit."""

    name: str
    """Of its setting, as the documents have it."""
    limit: int
    used: int
