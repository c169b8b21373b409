"""The transform `patterns`: the template that a line was made of, and its values, as attributes. The work is
`logboom.pipeline.templates`."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from logboom.pipeline.event.attributes import with_member
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.dials import Dial
from logboom.pipeline.plan.stateful import Advanced, Asked, BatchContext, State, StatefulTransform
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.stateful.grouping import text_words
from logboom.pipeline.templates.state import TemplateLimits, advance
from logboom.pipeline.templates.words import first_lines, openings_of, values_in, without_values
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.dialled import Dialled, DialParts
from logboom.pipeline.transforms.stateful_parts import answers_for, checked_text, texts_of

_TEMPLATES_MIN, _TEMPLATES_MAX, _KEYS_MAX = 10, 100_000, 1_000_000
_GROUP, _LINE, _ID, _TEMPLATE = "group", "line", "id", "template"
_encode = msgspec.json.Encoder().encode


class PatternsModel(TransformModel):
    """Finds templates of lines."""

    type: Literal["patterns"]
    by: str = "service"
    """Lines with the same key share templates."""

    into: str = Field(default="pattern", min_length=1)
    """What the attributes are called: `NAME.id`, `NAME.template`, `NAME.values`."""

    max_templates: Dialled[Annotated[int, Field(ge=_TEMPLATES_MIN, le=_TEMPLATES_MAX)]] = 1_000
    """Of each key; the one that was not seen for longest makes room."""

    max_keys: Dialled[Annotated[int, Field(ge=SHARDS, le=_KEYS_MAX)]] = 1_600
    """Keys that come when there are so many share templates."""


class PatternsTransform(StatefulTransform, frozen=True, kw_only=True, tag="patterns"):
    """Learns templates of the first lines of bodies, and writes them into the events."""

    by: str
    into: str
    max_templates: int
    max_keys: int
    condition_line: int = 0

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        templates, keys = self.max_templates, self.max_keys
        return (
            Dial(setting="max_templates", value=templates, kind="whole", min=_TEMPLATES_MIN, max=_TEMPLATES_MAX),
            Dial(setting="max_keys", value=keys, kind="whole", min=SHARDS, max=_KEYS_MAX),
        )

    @property
    def state_form(self) -> str:
        return f"templates by {self.by}"

    def ask(self, batch: pa.RecordBatch, inputs: npt.NDArray[np.int8], context: BatchContext) -> Asked:
        groups = texts_of(self.by, batch)
        lines = without_values(first_lines(batch.column("body")))
        rows = pa.RecordBatch.from_pydict({_GROUP: groups, _LINE: lines})
        return Asked(rows, text_words(groups))

    def advance(self, state: State, asked: Sequence[pa.RecordBatch], context: BatchContext) -> Advanced:
        if not asked:
            return Advanced(state=state, remembered=sum(table.num_rows for table in state))
        rows = pa.Table.from_batches(asked).combine_chunks()
        limits = TemplateLimits(self.max_templates, max(1, self.max_keys // SHARDS))
        groups, lines = (rows.column(name).combine_chunks() for name in (_GROUP, _LINE))
        learnt = advance(limits, state[0] if state else None, groups, lines)
        answers = answers_for(asked, np.zeros(rows.num_rows, np.int8), {_ID: learnt.ids, _TEMPLATE: learnt.texts})
        counts = {"evicted": learnt.evicted} if learnt.evicted else {}
        return Advanced(state=(learnt.state,), answers=answers, remembered=learnt.state.num_rows, counts=counts)

    def answered(self, batch: pa.RecordBatch, answers: pa.RecordBatch) -> pa.RecordBatch:
        coded = answers.column(_TEMPLATE).dictionary_encode()
        templates = coded.dictionary.to_pylist()
        openings = [openings_of(template.split(" ")) for template in templates]
        lines = first_lines(batch.column("body")).to_pylist()
        values = [
            None if at is None else _encode(values_in(openings[at], line)).decode()
            for at, line in zip(coded.indices.to_pylist(), lines, strict=True)
        ]
        quoted = pa.array([_encode(template).decode() for template in templates], pa.string())
        attributes = batch.column("attributes")
        for name, column in (
            ("id", _quoted(answers.column(_ID))),
            ("template", quoted.take(coded.indices)),
            ("values", pa.array(values, pa.string())),
        ):
            attributes = with_member(attributes, f"{self.into}.{name}", column)
        return batch.set_column(batch.schema.get_field_index("attributes"), "attributes", attributes)


def _quoted(ids: pa.Array) -> pa.Array:
    return pa.compute.binary_join_element_wise('"', ids, '"', "")


def _compile(model: PatternsModel, common: CommonFields, part: Part) -> PatternsTransform:
    dials = DialParts(part)
    return PatternsTransform(
        **common,
        by=model.by,
        into=model.into,
        max_templates=dials.whole(
            "max_templates", model.max_templates, at_least=_TEMPLATES_MIN, at_most=_TEMPLATES_MAX
        ),
        max_keys=dials.whole("max_keys", model.max_keys, at_least=SHARDS, at_most=_KEYS_MAX),
        condition_line=checked_text(part, "by", model.by),
        named_dials=dials.named(),
    )


TRANSFORM: Final = TransformType("patterns", PatternsModel, PatternsTransform, _compile)
