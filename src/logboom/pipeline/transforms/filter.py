"""The transform `filter`: keeps the events that a condition is true of."""

from typing import Final, Literal

from logboom.pipeline.findings import Part
from logboom.pipeline.plan.nodes import RoutingTransform
from logboom.pipeline.plan.outcomes import Choice, LayerScope, Outcome
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType


class FilterModel(TransformModel):
    """Keeps what the condition is true of."""

    type: Literal["filter"]
    condition: str


class FilterTransform(RoutingTransform, frozen=True, kw_only=True, tag="filter"):
    """Keeps events whose condition is true; false and null are dropped under this name."""

    condition: str
    condition_line: int = 0

    def outcome(self, layer: LayerScope) -> Outcome:
        return Choice(layer.condition(self.condition), layer.follow(self.name), layer.dropped(), layer.dead())


def _compile(model: FilterModel, common: CommonFields, part: Part) -> FilterTransform:
    line = part.expression("condition", model.condition)
    return FilterTransform(**common, condition=model.condition, condition_line=line)


TRANSFORM: Final = TransformType("filter", FilterModel, FilterTransform, _compile)
