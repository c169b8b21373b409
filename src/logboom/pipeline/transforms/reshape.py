"""The transform `reshape`: fields and attributes set, renamed, removed, cast and flattened. The work on columns is
`logboom.pipeline.reshape`; expressions that the kernels cannot compute come from Spark with the rows."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
from pydantic import Field

from logboom.base.settings import Settings, Texts
from logboom.pipeline.event.record_batch import with_column
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, KernelTransform, failed_column
from logboom.pipeline.plan.sql_text import bracketed
from logboom.pipeline.reshape.batch import (
    FORMED_FIELDS,
    PREFIX,
    SET_FIELDS,
    TEXT_FIELDS,
    Edits,
    SetValues,
    constant_fault,
    reshape_batch,
)
from logboom.pipeline.reshape.edits import CASTS
from logboom.pipeline.reshape.schemas import Schema, SchemaName, in_schema_batch
from logboom.pipeline.reshape.splitting import ALL, Split, split_batch
from logboom.pipeline.route.values import attribute_name, simple_value
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_WANTED: Final[Mapping[str, Literal["timestamp", "int"]]] = {"time": "timestamp", "severity_number": "int"}


class SplitModel(Settings):
    """Makes an event of each element of a list."""

    of: str
    """SQL over the event as it came, whose value is a list."""

    into: str | None = None
    """Where an element goes: an attribute, `body`, or `attributes` for its members. Without it: the attribute that
    `of` is."""


class SchemaModel(Settings):
    """Brings events into the fields of a published schema."""

    name: SchemaName
    """`ecs` (Elastic Common Schema 8.17), `ocsf` (Open Cybersecurity Schema Framework 1.3.0) or `cim` (Splunk's Common
    Information Model 6.0)."""

    into: Literal["attributes", "body"] = "attributes"
    """What the fields take the place of: the attributes, or the body, which becomes one JSON text."""

    product: str | None = None
    """In OCSF and CIM, what reports the events. Without it: the event's service."""

    vendor: str = "unknown"
    """In OCSF and CIM, who makes the product."""


class ReshapeModel(TransformModel):
    """Changes fields and attributes, in this order: rename, remove, cast, flatten, set, split, schema."""

    type: Literal["reshape"]
    rename: dict[str, str] = Field(default_factory=dict)
    """Old and new name."""

    remove: Texts = Field(default_factory=list)
    """Fields and attributes that go; in names of attributes `*` stands for any characters."""

    cast: dict[str, str] = Field(default_factory=dict)
    """Attribute, and `int`, `float`, `boolean`, `text` or `json`."""

    flatten: Texts = Field(default_factory=list)
    """Attributes that are objects, whose insides come to the top; `attributes` for all."""

    set: dict[str, str] = Field(default_factory=dict)
    """Field or attribute, and SQL over the event as it came."""

    split: SplitModel | None = None
    """One event for each element of a list."""

    schema_: SchemaName | SchemaModel | None = Field(default=None, alias="schema")
    """The fields of a published schema that events are brought into at the end: `ecs`, `ocsf` or `cim`."""


class SetField(msgspec.Struct, frozen=True, kw_only=True):
    """One field that is set."""

    target: str
    sql: str
    column: str
    """Where Spark puts the value, if it has to compute it."""
    line: int


class ReshapeTransform(KernelTransform, frozen=True, kw_only=True, tag="reshape"):
    """Changes fields and attributes, and makes several events of one. An event for which a value cannot be computed is
    a dead letter."""

    rename: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    cast: tuple[tuple[str, str], ...] = ()
    flatten: tuple[str, ...] = ()
    set: tuple[SetField, ...] = ()
    split: SetField | msgspec.UnsetType = msgspec.UNSET
    """Where an element goes, and the list."""
    schema: tuple[str, str, str | None, str] | msgspec.UnsetType = msgspec.UNSET
    """The fields of `reshape.schemas.Schema`."""

    @property
    def splits(self) -> bool:
        return self.split is not msgspec.UNSET

    @property
    def _computed(self) -> tuple[SetField, ...]:
        return self.set if self.split is msgspec.UNSET else (*self.set, self.split)

    @property
    def failure_labels(self) -> tuple[str, ...]:
        return tuple(self._label(one) for one in self._computed if _can_fail(one))

    def _label(self, one: SetField) -> str:
        return f"{self.name} ({'split' if one is self.split else one.target})"

    @property
    def event_values(self) -> tuple[tuple[str, str], ...]:
        asked = ((one.column, _typed(one)) for one in self._computed if simple_value(one.sql) is None)
        return tuple(asked)

    def run(self, batch: pa.RecordBatch, keys: Mapping[str, bytes]) -> pa.RecordBatch:
        edits = Edits(rename=self.rename, remove=self.remove, cast=self.cast, flatten=self.flatten)
        changed = reshape_batch(edits, [self._values(one, batch) for one in self.set], self.name, batch)
        if self.split is not msgspec.UNSET:
            lists = self._values(self.split, batch)
            if lists.counted_as:
                counted = np.zeros(batch.num_rows, np.int32)
                counted[list(lists.failed)] = 1
                changed = with_column(changed, lists.counted_as, pa.array(counted))
            split = Split(attribute_name(self.split.sql), self.split.sql, self.split.target)
            changed = split_batch(split, lists.values, lists.failed, self.name, changed)
        if self.schema is not msgspec.UNSET:
            changed = in_schema_batch(Schema(*self.schema), changed)
        return changed.drop_columns([column for column, _ in self.event_values])

    def _values(self, one: SetField, batch: pa.RecordBatch) -> SetValues:
        count = failed_column(self._label(one)) if _can_fail(one) else ""
        simple = simple_value(one.sql)
        if simple is not None:
            return SetValues(one.target, one.sql, simple(batch), (), count)
        texts = batch.column(one.column).to_pylist()
        failed = [row for row, text in enumerate(texts) if text is None]
        values = [None if text is None else _decode(text).get("v") for text in texts]
        return SetValues(one.target, one.sql, values, failed, count)


def _can_fail(one: SetField) -> bool:
    """Whether it can fail on an event: Spark computes it, or its field does not hold every value."""
    return simple_value(one.sql) is None or one.target in FORMED_FIELDS


def _typed(one: SetField) -> str:
    return f"CAST({bracketed(one.sql)} AS TIMESTAMP)" if one.target == "time" else one.sql


def _compile(model: ReshapeModel, common: CommonFields, part: Part) -> ReshapeTransform | None:
    changes = (model.rename, model.remove, model.cast, model.flatten, model.set, model.split, model.schema_)
    if not any(changes):
        part.problem((), "changes nothing: it needs one of rename, remove, cast, flatten, set, split and schema")
        return None
    for name, target in model.rename.items():
        _check_field(part, ("rename", name), name, TEXT_FIELDS)
        _check_field(part, ("rename", name), target, TEXT_FIELDS)
    for index, name in enumerate(model.remove):
        _check_field(part, ("remove", index), name, SET_FIELDS)
    for name, kind in model.cast.items():
        _check_field(part, ("cast", name), name, ())
        if kind not in CASTS:
            part.unknown(("cast", name), "type", kind, list(CASTS))
    for index, name in enumerate(model.flatten):
        if name != "attributes":
            _check_field(part, ("flatten", index), name, ())
    sets = [_set_field(part, common["name"], index, *pair) for index, pair in enumerate(model.set.items())]
    return ReshapeTransform(
        **common,
        rename=tuple(model.rename.items()),
        remove=tuple(model.remove),
        cast=tuple(model.cast.items()),
        flatten=tuple(model.flatten),
        set=tuple(sets),
        split=msgspec.UNSET if model.split is None else _split_field(part, common["name"], model.split),
        schema=msgspec.UNSET if model.schema_ is None else _schema(model.schema_),
    )


def _schema(given: str | SchemaModel) -> tuple[str, str, str | None, str]:
    model = SchemaModel.model_validate({"name": given}) if isinstance(given, str) else given
    return model.name, model.into, model.product, model.vendor


def _split_field(part: Part, name: str, model: SplitModel) -> SetField:
    line = part.expression(("split", "of"), model.of, wants="any")
    attribute = attribute_name(model.of)
    if model.into is not None and model.into not in (ALL, "body"):
        _check_field(part, ("split", "into"), model.into, ("body", ALL))
    elif model.into is None and attribute is None:
        part.problem(("split",), f"needs into: an attribute, body, or {ALL} for the members of each element")
    return SetField(target=model.into or f"{PREFIX}{attribute}", sql=model.of, column=f"split_{name}", line=line)


def _set_field(part: Part, name: str, index: int, target: str, sql: str) -> SetField:
    _check_field(part, ("set", target), target, SET_FIELDS)
    line = part.expression(("set", target), sql, wants=_WANTED.get(target, "any"))
    fault = constant_fault(target, sql)
    if fault is not None:
        part.problem(("set", target), fault)
    return SetField(target=target, sql=sql, column=f"set_{name}_{index}", line=line)


def _check_field(part: Part, key: tuple[str | int, ...], name: str, fields: tuple[str, ...]) -> None:
    if name in fields or (name.startswith(PREFIX) and name != PREFIX):
        return
    if name in dict(EVENT_COLUMNS) and name != "attributes":
        part.problem(key, f"{name!r} cannot be changed here; what can be is {', '.join((*fields, PREFIX + 'NAME'))}")
    else:
        part.unknown(key, "field", name, [*fields, f"{PREFIX}NAME"])


TRANSFORM: Final = TransformType("reshape", ReshapeModel, ReshapeTransform, _compile)
