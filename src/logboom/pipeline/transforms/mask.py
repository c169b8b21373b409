"""The transform `mask`: replaces secrets in the texts of events. The work on columns is `logboom.pipeline.mask`."""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
import pyarrow as pa
import re2
from pydantic import Field

from logboom.base.settings import Settings, Texts
from logboom.pipeline.findings import Part
from logboom.pipeline.mask.batch import engine_fault, mask_batch
from logboom.pipeline.mask.detect import finds_itself
from logboom.pipeline.mask.rules import Action, Kind, MaskRule, labels_of
from logboom.pipeline.parse.grok import PatternError, check_search, expand
from logboom.pipeline.plan.nodes import KernelTransform, KeyRef
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType

MASKABLE: Final = ("body", "attributes", "host", "service", "severity_text")
"""Columns that a mask may look at, beside `attributes.NAME`."""

_LABEL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_KEEP_DEFAULT: Final = 4


class MaskRuleModel(Settings):
    """One detector and what to do with what it finds."""

    kind: Kind
    action: Action = "redact"
    name: str | None = None
    """Name of its count and in its replacement; default: the kind."""

    pattern: str | None = None
    """For kind `pattern`: RE2 with `%{NAME}`. A group named `secret`, or the only group, is what is replaced."""

    keep: int | None = Field(default=None, ge=1, le=8)
    """For `keep_last`: how many characters stay; default 4."""

    replacement: str | None = None
    """For `redact`: text instead of `[NAME]`."""


class MaskModel(TransformModel):
    """Replaces secrets."""

    type: Literal["mask"]
    rules: list[MaskRuleModel] = Field(min_length=1)
    fields: Texts = Field(default_factory=lambda: ["body", "attributes"], min_length=1)
    """`attributes` for all of them, `attributes.NAME` for one, or text fields of the event."""

    names: bool = False
    """Whether names of attributes are masked too."""

    key_env: str | None = None
    """Environment variable that holds the key of `hash`."""

    key_file: str | None = None
    """File that holds the key of `hash`; a relative path is beside the pipeline's file."""


class MaskTransform(KernelTransform, frozen=True, kw_only=True, tag="mask"):
    """Replaces secrets in `fields` (string columns of the event, `attributes` or `attributes.NAME`)."""

    rules: tuple[MaskRule, ...]
    fields: tuple[str, ...] = ("body", "attributes")
    key: KeyRef | None = None
    names: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether the names of attributes are masked too. Left out of a plan that does not, as before it was there."""

    @property
    def mask_labels(self) -> tuple[str, ...]:
        return labels_of(self.rules)

    @property
    def key_refs(self) -> tuple[KeyRef, ...]:
        return () if self.key is None else (self.key,)

    def run(self, batch: pa.RecordBatch, keys: Mapping[str, bytes]) -> pa.RecordBatch:
        key = None if self.key is None else keys[self.key.id]
        return mask_batch(self.rules, self.fields, batch, key, names=self.names is True)


def _compile(model: MaskModel, common: CommonFields, part: Part) -> MaskTransform:
    for index, field in enumerate(model.fields):
        if field not in MASKABLE and not field.startswith("attributes."):
            part.unknown(("fields", index), "field", field, [*MASKABLE, "attributes.NAME"])
    if model.key_env is not None and model.key_file is not None:
        part.problem((), "needs one of key_env and key_file, not both")
    has_key = model.key_env is not None or model.key_file is not None
    if not has_key and any(rule.action == "hash" for rule in model.rules):
        part.problem((), "action hash needs a key: name it with key_env or key_file")
    compiled = [_rule(rule, part.at("rules", index)) for index, rule in enumerate(model.rules)]
    transform = MaskTransform(
        **common,
        rules=tuple(rule for rule in compiled if rule is not None),
        fields=tuple(dict.fromkeys(model.fields)),
        key=KeyRef(env=model.key_env, file=model.key_file) if has_key else None,
        names=model.names or msgspec.UNSET,
    )
    fault = engine_fault(transform.rules, transform.fields)
    if fault is not None:
        part.problem("rules", f"cannot be combined: {fault}")
    return transform


def _rule(model: MaskRuleModel, part: Part) -> MaskRule | None:
    label = model.name or model.kind
    if not _LABEL.fullmatch(label):
        part.problem("name", f"{label!r} should be letters, digits and '_', starting with a letter")
    if model.keep is not None and model.action != "keep_last":
        part.problem("keep", f"goes with action keep_last, not with {model.action}")
    if model.replacement is not None and model.action != "redact":
        part.problem("replacement", f"goes with action redact, not with {model.action}")
    if (model.pattern is not None) != (model.kind == "pattern"):
        part.problem((), "kind pattern and key 'pattern' go together")
        return None
    pattern = None if model.pattern is None else _pattern(model.pattern, part)
    rule = MaskRule(
        label=label,
        line=part.line,
        kind=model.kind,
        action=model.action,
        pattern=pattern,
        keep=_KEEP_DEFAULT if model.keep is None else model.keep,
        replacement=model.replacement,
    )
    if (rule.kind != "pattern" or pattern is not None) and finds_itself(rule):
        part.problem((), "matches its own replacement; choose another replacement or pattern")
    return rule


def _pattern(text: str, part: Part) -> str | None:
    """The expression whose group `secret` says what is replaced; None once a problem was reported."""
    try:
        expanded = expand(text, part.patterns, rename=False)
        check_search(expanded.expression)
    except PatternError as error:
        part.problem("pattern", f"pattern {error}")
        return None
    compiled = re2.compile(expanded.expression)
    if compiled.search("") is not None:
        part.problem("pattern", "pattern matches the empty text, so it would match everywhere")
        return None
    if "secret" not in compiled.groupindex and compiled.groups > 1:
        part.problem("pattern", "pattern has several groups; name the one that is the secret: (?P<secret>...)")
        return None
    return expanded.expression


TRANSFORM: Final = TransformType("mask", MaskModel, MaskTransform, _compile)
