"""The transform `enrich`: fields out of a table, by a key that the event has. The work is `logboom.pipeline.enrich`."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import pyarrow as pa
from pydantic import Field

from logboom.base.settings import DurationMs, Settings
from logboom.pipeline.enrich.lookup import PREFIX, enrich_batch
from logboom.pipeline.event.record_batch import with_column
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.locations import url_fault
from logboom.pipeline.plan.names import stream_name_problem
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, KernelTransform, missed_column
from logboom.pipeline.plan.tables import TableKind, TableRef
from logboom.pipeline.reshape.batch import TEXT_FIELDS
from logboom.pipeline.route.values import simple_value
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType

_HTTP: Final = ("http://", "https://")
GEO_FIELDS: Final[Mapping[str, str]] = {
    "city.names.en": "geo.city_name",
    "country.iso_code": "geo.country_iso_code",
    "country.names.en": "geo.country_name",
    "continent.code": "geo.continent_code",
    "subdivisions": "geo.subdivisions",
    "location.latitude": "geo.latitude",
    "location.longitude": "geo.longitude",
    "location.time_zone": "geo.timezone",
    "autonomous_system_number": "as.number",
    "autonomous_system_organization": "as.organization.name",
}
"""What is taken of MaxMind's files where `fields` says nothing: City, Country and ASN, free and paid."""


class TableModel(Settings):
    """Where a table comes from."""

    type: TableKind
    path: str | None = None
    """Of `csv`, `parquet`, `geoip` (a .mmdb file) and `json`; relative to the pipeline's file."""

    url: str | None = None
    """Of `json`: an address that is asked every `refresh`."""

    stream: str | None = None
    """Of `stream`: the newest record of each key, whose value is JSON."""

    key: str | None = None
    """The column or member that is looked up."""

    refresh: DurationMs = Field(default=60_000, ge=1_000)
    """How old what came over the network may become. Files are read again when they change."""


class EnrichModel(TransformModel):
    """Adds what a table has for a key."""

    type: Literal["enrich"]
    table: TableModel
    on: str
    """The key: a field, an attribute, or `coalesce`, `concat` and `||` of these."""

    fields: dict[str, str] = Field(default_factory=dict)
    """Name in the table, with dots for what is inside objects, and field of the event. Must be given but for
    `geoip`."""


class EnrichTransform(KernelTransform, frozen=True, kw_only=True, tag="enrich"):
    """Adds fields of the row that a table has for the event's key. Keys without a row are counted."""

    table: TableRef
    on: str
    fields: tuple[tuple[str, str], ...]
    condition_line: int = 0

    @property
    def table_refs(self) -> tuple[TableRef, ...]:
        return (self.table,)

    @property
    def miss_labels(self) -> tuple[str, ...]:
        return (self.name, self._damaged) if self.table.kind == "geoip" else (self.name,)

    @property
    def _damaged(self) -> str:
        """Under which keys are counted at which the table is damaged."""
        return f"{self.name}.damaged"

    def run(self, batch: pa.RecordBatch, keys: Mapping[str, bytes]) -> pa.RecordBatch:
        key_of = simple_value(self.on)
        assert key_of is not None, "the compiler has looked at it"
        texts = pa.array(key_of(batch), pa.string())
        enriched, missed, damaged = enrich_batch(
            self.table.kind, keys[self.table.id].decode(), texts, self.fields, batch
        )
        enriched = with_column(enriched, missed_column(self.name), missed)
        if self.table.kind != "geoip":
            return enriched
        return with_column(enriched, missed_column(self._damaged), damaged)


def _compile(model: EnrichModel, common: CommonFields, part: Part) -> EnrichTransform | None:
    line = part.expression("on", model.on, wants="any")
    if not _is_key(model.on):
        part.problem("on", "should be a text: a field, an attribute, or coalesce, concat and || of these")
    for name, target in model.fields.items():
        if target not in TEXT_FIELDS and (not target.startswith(PREFIX) or target == PREFIX):
            part.unknown(("fields", name), "field", target, [*TEXT_FIELDS, f"{PREFIX}NAME"])
    fields = model.fields
    if not fields and model.table.type == "geoip":
        fields = {name: PREFIX + target for name, target in GEO_FIELDS.items()}
    if not fields:
        part.problem((), "needs fields: names in the table, and the event's fields for them")
    table = _table(model.table, common["name"], tuple(fields), part.at("table"))
    if table is None:
        return None
    return EnrichTransform(**common, table=table, on=model.on, fields=tuple(fields.items()), condition_line=line)


def _is_key(sql: str) -> bool:
    """Whether it is a text that the kernels can make."""
    value = simple_value(sql)
    if value is None:
        return False
    columns = {name: pa.array([None], pa.string()) for name, kind in EVENT_COLUMNS if kind in ("string", "variant")}
    try:
        found: list[Any] = value(pa.RecordBatch.from_pydict(columns))
    except KeyError:  # a column of another kind
        return False
    return found == [None] or isinstance(found[0], str)


def _table(model: TableModel, name: str, fields: tuple[str, ...], part: Part) -> TableRef | None:
    given = {"path": model.path, "url": model.url, "stream": model.stream}
    wanted = {"stream": ("stream",), "json": ("path", "url")}.get(model.type, ("path",))
    there = [key for key, value in given.items() if value is not None]
    for key in there:
        if key not in wanted:
            part.problem(key, f"cannot be used with type {model.type}, which needs {' or '.join(wanted)}")
    found = [key for key in there if key in wanted]
    if len(found) != 1:
        part.problem((), f"needs {' or '.join(wanted)}" + (", not both" if len(found) > 1 else ""))
        return None
    if model.type in ("csv", "parquet") and model.key is None:
        part.problem((), "needs key: the column that is looked up")
    if model.type in ("geoip", "stream") and model.key is not None:
        part.problem("key", f"has no meaning with type {model.type}")
    location = str(given[found[0]])
    fault = _location_fault(found[0], location)
    if fault is not None:
        part.problem(found[0], fault)
        return None
    return TableRef(
        name=name, kind=model.type, location=location, key=model.key, fields=fields, refresh_ms=model.refresh
    )


def _location_fault(key: str, location: str) -> str | None:
    """What is wrong with where a table is, as text."""
    if key == "stream":
        return stream_name_problem(location)
    if key == "path":
        is_address = location.startswith(_HTTP)
        return f"{location!r} is an address: give it as url in a table of type json" if is_address else None
    if not location.startswith(_HTTP):
        return f"{location!r} should begin with http:// or https://"
    fault = url_fault(location)
    return None if fault is None else f"{location!r} {fault}"


TRANSFORM: Final = TransformType("enrich", EnrichModel, EnrichTransform, _compile)
