"""Subjects of NATS, and patterns of them: tokens between dots, `*` for any one token, `>` for one or more at the end.

The rules are those of nats-server (`IsValidSubject`, `SubjectsCollide`, `subjectIsSubsetMatch`). Pure, and known to
everything that takes a pattern from a person: settings of streams, commands.
"""

from typing import Final

ONE: Final = "*"
"""Stands for any one token."""
REST: Final = ">"
"""Stands for all tokens that follow, of which there is at least one; the last token of a pattern."""
PARTITION: Final = "{partition}"
"""Stands for the index of a partition, in the patterns of a stream's settings."""
PATTERN_BYTES_MAX: Final = 1_024
"""A subscription has to fit into a line of the protocol, which nats-server bounds at 4 KiB by default."""

_BLANKS: Final = frozenset(" \t\r\n\f\0")


def pattern_fault(pattern: str) -> str | None:
    """What is wrong with a pattern, as the end of a sentence about it; None if it is right.

    >>> pattern_fault("orders.>.eu")
    "has '>' before its last token"
    """
    tokens = pattern.split(".")
    if len(pattern.encode("utf-8", "surrogatepass")) > PATTERN_BYTES_MAX:
        return f"is longer than {PATTERN_BYTES_MAX} bytes"
    if "" in tokens:
        return "is empty" if not pattern else "has an empty token"
    if not pattern.isprintable() or not _BLANKS.isdisjoint(pattern):
        return "has a blank, or a character that cannot be printed"
    if REST in tokens[:-1]:
        return f"has {REST!r} before its last token"
    for token in tokens:
        if len(token) > 1 and (ONE in token or REST in token):
            return f"has a wildcard inside of the token {token!r}: it stands alone between dots"
    return None


def matches(pattern: str, subject: str) -> bool:
    """Whether a message on `subject` is delivered to a subscription of `pattern`.

    >>> matches("orders.*.>", "orders.eu.42.paid")
    True
    """
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == REST:
        del wanted[-1]
        if len(tokens) <= len(wanted):
            return False
        del tokens[len(wanted) :]
    if len(tokens) != len(wanted):
        return False
    return all(one in (ONE, token) for one, token in zip(wanted, tokens, strict=True))


def overlap(one: str, other: str) -> bool:
    """Whether there is a subject that both patterns match.

    >>> overlap("orders.*", "*.eu"), overlap("orders.>", "orders")
    (True, False)
    """
    tokens, others = one.split("."), other.split(".")
    for token, another in zip(tokens, others, strict=False):
        if REST in (token, another):
            return True
        if token != another and ONE not in (token, another):
            return False
    # Where one is longer, the other has ended without `>`.
    return len(tokens) == len(others)


def covers(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every subject that `narrow` matches.

    >>> covers("orders.>", "orders.*.paid"), covers("orders.*", "orders.>")
    (True, False)
    """
    tokens, others = wide.split("."), narrow.split(".")
    for token, another in zip(tokens, others, strict=False):
        if token == REST:
            return True
        if another == REST or token not in (ONE, another):
            return False
    return len(tokens) == len(others)


def without_partition(pattern: str) -> str:
    """The pattern with `*` where the index of a partition goes."""
    return ".".join(ONE if token == PARTITION else token for token in pattern.split("."))
