"""A table as a plan names it. Knows only settings."""

from typing import Literal

import msgspec

TableKind = Literal["csv", "parquet", "json", "geoip", "stream"]


class TableRef(msgspec.Struct, frozen=True, kw_only=True):
    """Where a table comes from, and what of it is used."""

    name: str
    """Of the transform that uses it."""
    kind: TableKind
    location: str
    """A path, relative to the pipeline's file; an http or https address for `json`; a stream's name."""
    key: str | None = None
    """The column or member that is looked up; None for a stream (its records' keys), for `geoip`, and for JSON that
    is an object by key."""
    fields: tuple[str, ...] = ()
    """The names that are taken of a row, with dots for what is inside objects."""
    refresh_ms: int = 60_000
    """How old a table that is asked for over the network may become."""

    @property
    def id(self) -> str:
        """The name under which its version is pinned and its file is handed to executors."""
        return f"table:{self.name}"
