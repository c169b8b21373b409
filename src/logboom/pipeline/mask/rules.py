"""What a rule of a mask looks for and what it does with a find, as it is in the plan. It knows settings alone."""

from typing import Literal

import msgspec

Kind = Literal["email", "ipv4", "ipv6", "card", "token", "pattern"]
Action = Literal["hash", "redact", "keep_last"]


class MaskRule(msgspec.Struct, frozen=True, kw_only=True):
    """One detector and what to do with what it finds."""

    label: str
    line: int
    kind: Kind
    action: Action
    pattern: str | None = None
    """RE2, for kind `pattern` alone; a group named `secret`, or the only group, limits what is replaced."""
    keep: int = 4
    """For `keep_last`: how many characters stay."""
    replacement: str | None = None
    """For `redact`; None: `[label]`."""


def labels_of(rules: tuple[MaskRule, ...]) -> tuple[str, ...]:
    """The labels of rules, each once, in order."""
    return tuple(dict.fromkeys(rule.label for rule in rules))
