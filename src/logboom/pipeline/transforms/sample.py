"""The transform `sample`: keeps one event in so many, by a hash (see `logboom.pipeline.plan.sampling`); with a rate for
each key that depends on what comes, it is a `SampleByKey`."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

import msgspec
from pydantic import Field

from logboom.base.settings import DurationMs
from logboom.pipeline.findings import Findings, Part
from logboom.pipeline.plan.dials import Dial, DialValues
from logboom.pipeline.plan.nodes import RoutingTransform, Transform
from logboom.pipeline.plan.outcomes import Choice, Counted, LayerScope, Outcome
from logboom.pipeline.plan.sampling import Sampling, key_condition
from logboom.pipeline.route.values import simple_value
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.dialled import Dialled, DialParts, exclude_dials, with_exclude
from logboom.pipeline.transforms.sample_by_key import KEYS_MAX, OVER_MAX_MS, OVER_MIN_MS, PER_SECOND_MIN, SampleByKey
from logboom.pipeline.transforms.stateful_parts import checked_condition, checked_text

_UNDECIDED: Final = "whether it stays cannot be told"
RATIO_MIN: Final = 1e-9
"""The smallest part that a dial takes."""

_OVER_DEFAULT_MS: Final = 10_000
_MAX_KEYS_DEFAULT: Final = 100_000
_PerSecond = Annotated[float, Field(ge=PER_SECOND_MIN, allow_inf_nan=False)]
_WAYS: Final = "rate (one in so many), ratio (this part), per_second and target_per_second (of each key)"


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

    per_second: Dialled[_PerSecond] | None = None
    """Keep at most this many a second of each key that `by` names."""

    target_per_second: Dialled[_PerSecond] | None = None
    """Keep about so many a second of each key, at a rate that follows what comes."""

    by: str | None = None
    """The key that has a rate of its own; without it all events have the same."""

    over: Dialled[Annotated[DurationMs, Field(ge=OVER_MIN_MS, le=OVER_MAX_MS)]] | None = None
    """The time in which the rate for `target_per_second` follows; default 10s."""

    max_keys: Dialled[Annotated[int, Field(ge=SHARDS, le=KEYS_MAX)]] | None = None
    """How many keys are told apart; default 100000."""


class SampleTransform(RoutingTransform, frozen=True, kw_only=True, tag="sample"):
    """Keeps one in `rate` by the hash of `key`. The fields are those of `Sampling`."""

    opens_layer: ClassVar[bool] = True  # its decision may depend on the weight that an earlier sample has written

    rate: float
    key: str = "trace_id"
    exclude: str | None = None
    condition_line: int = 0
    follows_weight: bool = False
    """Set where every sample before this one used the same key."""
    exclude_enabled: bool | msgspec.UnsetType = msgspec.UNSET
    """False: nothing is excluded, until its dial is on again. Left out of a plan where it is true."""

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        exclude = exclude_dials(self.exclude, self.exclude_enabled)
        if any(named.setting == "ratio" for named in self.named_dials or ()):
            return (Dial(setting="ratio", value=1 / self.rate, min=RATIO_MIN, max=1), *exclude)
        return (Dial(setting="rate", value=self.rate, min=1), *exclude)

    def turned(self, values: DialValues) -> Self:
        fields = with_exclude(values)
        if "ratio" in fields:
            fields["rate"] = 1 / fields.pop("ratio")
        return msgspec.structs.replace(self, **fields)

    @property
    def sampling(self) -> Sampling:
        """What it decides by."""
        exclude = None if self.exclude_enabled is False else self.exclude
        return Sampling(rate=self.rate, key=self.key, exclude=exclude, follows_weight=self.follows_weight)

    def outcome(self, layer: LayerScope) -> Outcome:
        # What follows must see the new weight, so that its readers are not folded into this layer.
        # A plan has the same places, and so the same streams, however its dials stand.
        dead = layer.dead(_UNDECIDED) if self.exclude is None else layer.failed(f"{self.name} (exclude)", self.exclude)
        decided = Choice(layer.sample(self.sampling), layer.leave(self.name), layer.dropped(), dead)
        if simple_value(self.key) is not None:  # such a key cannot fail
            return decided
        key_failed = Counted(f"{self.name} (key)", decided)
        return Choice(layer.condition(key_condition(self.sampling)), decided, decided, key_failed)


def _compile(model: SampleModel, common: CommonFields, part: Part) -> SampleTransform | SampleByKey | None:
    given = [model.rate, model.ratio, model.per_second, model.target_per_second]
    if sum(value is not None for value in given) != 1:
        part.problem((), f"needs exactly one of {_WAYS}")
        if model.exclude is not None:
            part.expression("exclude", model.exclude)
        return None
    if model.per_second is not None or model.target_per_second is not None:
        return _by_key(model, common, part)
    for name in ("by", "over", "max_keys"):
        if getattr(model, name) is not None:
            part.problem(name, "goes with per_second or target_per_second")
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


def _by_key(model: SampleModel, common: CommonFields, part: Part) -> SampleByKey:
    line = checked_text(part, "key", model.key)
    if model.by is not None:
        line = checked_text(part, "by", model.by)
    if model.exclude is not None:
        line = checked_condition(part, "exclude", model.exclude)
    if model.per_second is not None and model.over is not None:
        part.problem("over", "goes with target_per_second")
    dials = DialParts(part)
    most, target = (
        None if given is None else dials.number(key, given, at_least=PER_SECOND_MIN)
        for key, given in (("per_second", model.per_second), ("target_per_second", model.target_per_second))
    )
    return SampleByKey(
        **common,
        per_second=most,
        target_per_second=target,
        over_ms=_OVER_DEFAULT_MS
        if model.over is None
        else dials.milliseconds("over", model.over, at_least=OVER_MIN_MS, at_most=OVER_MAX_MS),
        by=model.by,
        key=model.key,
        exclude=model.exclude,
        max_keys=_MAX_KEYS_DEFAULT
        if model.max_keys is None
        else dials.whole("max_keys", model.max_keys, at_least=SHARDS, at_most=KEYS_MAX),
        condition_line=line,
        named_dials=dials.named(),
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
        elif node.changes_weights:
            before |= {f"the weights of {node.name}"}
        keys_at.update(dict.fromkeys(node.outputs, before))
        marked.append(node)
    return marked


TRANSFORM: Final[TransformType[SampleModel, SampleTransform | SampleByKey]] = TransformType(
    "sample", SampleModel, SampleTransform, _compile, arrange=_mark_chains, other_nodes=(SampleByKey,)
)
