"""The transform `sample`: keeps one event in so many, by a hash (see `logboom.pipeline.plan.sampling`)."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

import msgspec
from pydantic import Field

from logboom.pipeline.findings import Findings, Part
from logboom.pipeline.plan.dials import Dial, DialValues
from logboom.pipeline.plan.nodes import RoutingTransform, Transform
from logboom.pipeline.plan.outcomes import Choice, LayerScope, Outcome
from logboom.pipeline.plan.sampling import Sampling
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.dialled import Dialled, DialParts

RATIO_MIN: Final = 1e-9
"""The smallest part that a dial takes."""


class SampleModel(TransformModel):
    """Keeps a part."""

    type: Literal["sample"]
    rate: Dialled[Annotated[float, Field(ge=1, allow_inf_nan=False)]] | None = None
    """Keep one in so many."""

    ratio: Dialled[Annotated[float, Field(gt=0, le=1)]] | None = None
    """Keep this part."""

    key: str = "trace_id"
    """Events with the same key are kept or dropped together."""

    exclude: str | None = None
    """Always keep what this is true of."""


class SampleTransform(RoutingTransform, frozen=True, kw_only=True, tag="sample"):
    """Keeps one in `rate` by the hash of `key`. The fields are those of `Sampling`."""

    opens_layer: ClassVar[bool] = True  # its decision may depend on the weight that an earlier sample has written

    rate: float
    key: str = "trace_id"
    exclude: str | None = None
    condition_line: int = 0
    follows_weight: bool = False
    """Set where every sample before this one used the same key."""

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        if any(named.setting == "ratio" for named in self.named_dials or ()):
            return (Dial(setting="ratio", value=1 / self.rate, min=RATIO_MIN, max=1),)
        return (Dial(setting="rate", value=self.rate, min=1),)

    def turned(self, values: DialValues) -> Self:
        rate = values["rate"] if "rate" in values else 1 / values["ratio"]
        return msgspec.structs.replace(self, rate=float(rate))

    @property
    def sampling(self) -> Sampling:
        """What it decides by."""
        return Sampling(rate=self.rate, key=self.key, exclude=self.exclude, follows_weight=self.follows_weight)

    def outcome(self, layer: LayerScope) -> Outcome:
        # What follows must see the new weight, so that its readers are not folded into this layer.
        return Choice(layer.sample(self.sampling), layer.leave(self.name), layer.dropped(), layer.dead())


def _compile(model: SampleModel, common: CommonFields, part: Part) -> SampleTransform | None:
    if (model.rate is None) == (model.ratio is None):
        part.problem((), "needs exactly one of rate (one in so many) and ratio (this part)")
        return None
    dials = DialParts(part)
    if model.rate is not None:
        rate = dials.number("rate", model.rate, at_least=1)
    else:
        rate = 1 / max(dials.number("ratio", model.ratio or 1.0, at_least=RATIO_MIN, at_most=1), RATIO_MIN)
    line = part.expression("key", model.key, wants="any")
    if model.exclude is not None:
        line = part.expression("exclude", model.exclude)
    return SampleTransform(
        **common, rate=rate, key=model.key, exclude=model.exclude, condition_line=line, named_dials=dials.named()
    )


def _mark_chains(findings: Findings, transforms: Sequence[Transform]) -> list[Transform]:
    """Sets `follows_weight` where the weights before a sample come from samples of the same key, so that the rates of
    two in a row multiply."""
    keys_at: dict[str, frozenset[str]] = {}
    marked: list[Transform] = []
    for node in transforms:
        before = frozenset[str]().union(*(keys_at.get(edge, frozenset()) for edge in node.inputs))
        if isinstance(node, SampleTransform):
            if node.key in before and len(before) > 1:
                others = ", ".join(sorted(before - {node.key}))
                message = f"samples by {node.key} behind samples by {node.key} and {others}; use one key for all"
                findings.problem(("transforms", node.name), message)
            node = msgspec.structs.replace(node, follows_weight=node.key in before)
            before |= {node.key}
        keys_at.update(dict.fromkeys(node.outputs, before))
        marked.append(node)
    return marked


TRANSFORM: Final = TransformType("sample", SampleModel, SampleTransform, _compile, arrange=_mark_chains)
