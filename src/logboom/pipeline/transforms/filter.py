"""The transform `filter`: keeps the events that a condition is true of."""

from typing import Final, Literal

import msgspec

from logboom.pipeline.findings import Part
from logboom.pipeline.plan.dials import Dial
from logboom.pipeline.plan.nodes import RoutingTransform
from logboom.pipeline.plan.outcomes import Choice, LayerScope, Outcome
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.dialled import DialParts, Switch


class FilterModel(TransformModel):
    """Keeps what the condition is true of."""

    type: Literal["filter"]
    condition: str
    enabled: Switch = True
    """Off lets everything through."""


class FilterTransform(RoutingTransform, frozen=True, kw_only=True, tag="filter"):
    """Keeps events whose condition is true; false and null are dropped under this name."""

    condition: str
    condition_line: int = 0
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    """False lets everything through. Left out of a plan where it is true, as before it was there."""

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        return (Dial(setting="enabled", kind="switch", value=self.enabled is not False),)

    def outcome(self, layer: LayerScope) -> Outcome:
        # A plan has the same places, and so the same streams, however its dials stand.
        condition = "true" if self.enabled is False else self.condition
        dead = layer.failed(self.name, self.condition)
        return Choice(layer.condition(condition), layer.follow(self.name), layer.dropped(), dead)


def _compile(model: FilterModel, common: CommonFields, part: Part) -> FilterTransform:
    line = part.expression("condition", model.condition)
    dials = DialParts(part)
    is_on = dials.switch("enabled", model.enabled)
    return FilterTransform(
        **common,
        condition=model.condition,
        condition_line=line,
        enabled=msgspec.UNSET if is_on else False,
        named_dials=dials.named(),
    )


TRANSFORM: Final = TransformType("filter", FilterModel, FilterTransform, _compile)
