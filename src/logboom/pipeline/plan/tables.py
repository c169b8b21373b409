"""The description of a table in a plan. Knows only settings."""

from typing import Literal

import msgspec

TableKind = Literal["csv", "parquet", "json", "geoip", "stream"]


class TableRef(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a table, and the columns that are used."""

    name: str
    """Name of the transform that uses it."""
    kind: TableKind
    location: str
    """A path, relative to the pipeline's file; an http or https address for `json`; or a stream's name."""
    key: str | None = None
    """The column or member with the key; None for a stream (its records' keys), for `geoip`, and for JSON that is an
    object by key."""
    fields: tuple[str, ...] = ()
    """The columns that are used, with dots for members of objects."""
    refresh_ms: int = 60_000
    """Maximum age of a table that is downloaded."""

    @property
    def id(self) -> str:
        """The name by which its version is pinned and its file is passed to executors."""
        return f"table:{self.name}"
