"""What counts as an e-mail address, an IP address, a card number, a token, and where in a text they are.

A detector is an RE2 expression that finds candidates, cheaply and over whole columns, and a refinement that selects the
parts of a candidate that are finds. It knows texts as UTF-8 bytes. It must not know columns, JSON or what is done
with a find. Expressions use no word boundaries, so that the quotes around a value in JSON change nothing.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import re2

from logboom.pipeline.mask.rules import MaskRule

Span = tuple[int, int]
# Letters of any script, roughly: beyond Latin-1's signs, without blanks and punctuation. `\p{L}` would be exact and
# makes RE2 ten times slower where it has to give the position of a match.
_FOREIGN: Final = r"[^\x00-\x{BF}\x{2000}-\x{206F}\x{3000}-\x{303F}\x{FF00}-\x{FFEF}]"
_EMAIL: Final = (
    rf"(?:[A-Za-z0-9.!#$%&*+^_~-]|{_FOREIGN})+(?:@|%40)"
    rf"(?:(?:[A-Za-z0-9]|{_FOREIGN})(?:(?:[A-Za-z0-9-]|{_FOREIGN})*(?:[A-Za-z0-9]|{_FOREIGN}))?\.)+"
    rf"(?:(?:[A-Za-z]|{_FOREIGN}){{2,}}|xn--[0-9a-zA-Z-]+)"
)
_IPV4: Final = r"[0-9]+(?:\.[0-9]+){3,}"
_IPV6: Final = r"[0-9A-Fa-f:]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*"
_CARD: Final = r"[0-9](?:[ -]?[0-9]){12,}"

_SENSITIVE_NAME: Final = (
    r"password|passwd|passphrase|pwd|secret|token|api[ _.-]?key|access[_.-]?key|private[_.-]?key|secret[_.-]?key"
)
_SENSITIVE_KEY: Final = rf"(?:{_SENSITIVE_NAME}|authorization|credentials?|cookie)"
SECRET_KEY: Final = re.compile(rf"(?i){_SENSITIVE_KEY}\Z")
"""Names of attributes whose whole value is a secret, by how they end."""

SECRET_KEY_IN_LINES: Final = re.compile(rf"(?im){_SENSITIVE_KEY}$")
"""The same over many names at once, one a line."""

SECRET_KEY_IN_JSON: Final = rf"(?i:{_SENSITIVE_KEY})\":[^{{\[]"
"""RE2 over an object as JSON: has such a name with a plain value."""

_TOKENS: Final = (
    r"(?:eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"  # JWT
    r"|(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA|ANVA|ABIA|ACCA)[A-Z0-9]{16}"  # AWS key ids
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|gl(?:pat|ptt|dt|rt)-[A-Za-z0-9_-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|sk-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\s]*(?:-----END [A-Z ]*PRIVATE KEY-----)?)"
)
_BEARER: Final = r"(?i:bearer|basic)\s+(?P<secret1>[A-Za-z0-9._~+/-]{8,}=*)"
_ASSIGNED: Final = (
    rf"(?i:{_SENSITIVE_NAME})[\"']?(?:\s*=\s*|:\s*)(?:\"(?P<secret2>[^\"]+)\"|'(?P<secret3>[^']+)'"
    r"|(?P<secret4>[^\s\"'&;,]+))"
)
_IN_URL: Final = r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"]*:(?P<secret5>[^\s/@\"]+)@"
_TOKEN: Final = f"{_TOKENS}|{_BEARER}|{_ASSIGNED}|{_IN_URL}"

ANCHOR: Final = re.compile(r"(?<!\[)\^|\$|\\A|\\z")
"""Matches expressions that may contain anchors. One that is taken for such by mistake is only slower."""

_ALNUM: Final = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_DIGITS: Final = frozenset(b"0123456789")
_DOT: Final = ord(".")
_COLON: Final = ord(":")
_IPV6_CHARS_MAX: Final = 45
_CARD_DIGITS_MIN: Final = 13
_CARD_DIGITS_MAX: Final = 19
_CARD_GROUPS: Final = re.compile(rb"[0-9]+")
_PROSE: Final = re.compile(rb"(?i)(?:token|secret|key)[\"']?:\s+\Z")


class Mark(NamedTuple):
    """A byte that every find of a kind contains."""

    byte: int
    behind: bytes = b""
    """The bytes right behind it."""
    between_digits: bool = False


_MARKS: Final = {
    "email": (Mark(ord("@")), Mark(ord("%"), behind=b"40")),
    "ipv4": (Mark(ord("."), between_digits=True),),
}


class Detector(NamedTuple):
    """How one rule finds what it masks."""

    expression: str
    """RE2 over text; finds at least everything `find` finds."""

    find: Callable[[bytes], list[Span]]
    """Spans to replace in a text, from left to right."""

    may_find: Callable[[bytes], bool]
    """Whether there is a candidate in a text."""

    marks: tuple[Mark, ...]
    """Marks of which every find has one, for context-free detectors; a byte is found far faster than a match."""

    digit_runs: bool
    """Whether every find has thirteen digits or more with nothing but blanks and dashes between."""

    context_free: bool
    """Whether a candidate is a find or not does not depend on the text around it."""

    exact: bool
    """Whether the text around a value, or how JSON writes it, can hide a find from `expression`."""

    by_key: bool
    """Whether whole values of attributes with names such as `password` are finds."""

    is_masked: Callable[[bytes], bool]
    """Whether a text is a replacement that this rule makes."""


@lru_cache(maxsize=256)
def detector_for(rule: MaskRule) -> Detector:
    """The detector of a rule; made once per process."""
    expression, refine = {
        "email": (_EMAIL, _whole),
        "ipv4": (_IPV4, _ipv4),
        "ipv6": (_IPV6, _ipv6),
        "card": (_CARD, _cards),
        "token": (_TOKEN, _whole),
        "pattern": (rule.pattern or "", _whole),
    }[rule.kind]
    compiled = re2.compile(expression.encode())
    groups = _secret_groups(compiled, rule)
    is_masked = _masked_form(rule)
    prose = rule.kind == "token"

    def find(text: bytes) -> list[Span]:
        found: list[Span] = []
        for match in compiled.finditer(text):
            start, end = _secret_span(match, groups)
            for part in refine(text, start, end):
                if prose and _is_prose(text, match.start(), part):
                    continue
                if part[0] < part[1] and not is_masked(text[part[0] : part[1]]):
                    found.append(part)
        return found

    context_free = rule.kind in ("email", "ipv4")
    marks = _MARKS.get(rule.kind, ())

    def may_find(text: bytes) -> bool:
        return compiled.search(text) is not None

    exact = rule.kind in ("token", "pattern")
    digit_runs = rule.kind == "card"
    return Detector(expression, find, may_find, marks, digit_runs, context_free, exact, prose, is_masked)


def finds_itself(rule: MaskRule) -> bool:
    """Whether a rule would find, in whole or in part, its own replacements; masking would then never end."""
    forms = {
        "redact": (rule.replacement if rule.replacement is not None else f"[{rule.label}]",),
        "hash": (f"[{rule.label}:0123456789abcdef]", f"[{rule.label}:abcdefabcdefabcd]", f"[{rule.label}]"),
        "keep_last": (f"[{rule.label}]",),
    }[rule.action]
    return any(detector_for(rule).find(form.encode()) for form in forms)


def _secret_groups(compiled: "re2._Regexp", rule: MaskRule) -> tuple[int, ...]:
    """Numbers of the groups that may hold the secret; none: the whole match is it."""
    if rule.kind == "pattern":
        named = compiled.groupindex.get("secret")
        return (named,) if named is not None else (1,) if compiled.groups == 1 else ()
    return tuple(compiled.groupindex.values())


def _secret_span(match: "re2._Match", groups: tuple[int, ...]) -> Span:
    for group in groups:
        start, end = match.span(group)
        if start >= 0:
            return start, end
    return match.start(), match.end()


def _masked_form(rule: MaskRule) -> Callable[[bytes], bool]:
    """Whether a text is a replacement: without this a pattern such as `user=(\\S+)` would find its own replacements."""
    form = re.compile(rb"\[[A-Za-z][A-Za-z0-9_]*(?::[0-9a-f]{16})?\]")
    replacement = rule.replacement.encode() if rule.replacement is not None else None
    keeps = rule.action == "keep_last"

    def is_masked(text: bytes) -> bool:
        if text == replacement or form.fullmatch(text) is not None:
            return True
        return keeps and text.startswith(b"*") and text.count(b"*") >= len(text.decode(errors="replace")) // 2

    return is_masked


def _whole(text: bytes, start: int, end: int) -> Iterator[Span]:
    yield start, end


def _is_prose(text: bytes, start: int, secret: Span) -> bool:
    """`invalid token: expired` is a sentence: behind a colon and a blank a value needs a digit and some length."""
    if _PROSE.search(text, start, secret[0]) is None:
        return False
    value = text[secret[0] : secret[1]]
    return len(value) < 8 or _DIGITS.isdisjoint(value)


# --- addresses --------------------------------------------------------------------------------------------------


def _ipv4(text: bytes, start: int, end: int) -> Iterator[Span]:
    """Four numbers to 255; a run of five and more is a version or an object id."""
    parts = text[start:end].split(b".")
    if len(parts) == 4 and all(len(part) <= 3 and int(part) <= 255 for part in parts):
        yield start, end


def _ipv6(text: bytes, start: int, end: int) -> Iterator[Span]:
    """Addresses in a run of hexadecimal digits and colons, from the left, each as long as it can be; no `::` alone.

    Without `::` a run has eight groups, or nine of which the last is a port; a longer one is a dump or a fingerprint.
    """
    if text.find(b"::", start, end) < 0:
        groups = text[start:end].rstrip(b":.").count(b":") + 1
        if groups < 7 or groups > 9:  # seven with an IPv4 address in the last
            return
    position = start
    while position < end:
        found = _ipv6_at(text, position, end)
        if found is not None:
            yield position, found
            position = found
        else:
            position = _next_group(text, position, end)


def _next_group(text: bytes, position: int, end: int) -> int:
    """Where the next address could begin: behind this group's colon, or at a pair of colons."""
    colon = text.find(b":", position, end)
    if colon < 0:
        return end
    return colon if colon > position and text[colon : colon + 2] == b"::" else colon + 1


def _ipv6_at(text: bytes, position: int, end: int) -> int | None:
    """Where the longest address that begins at `position` ends."""
    pair = text.startswith(b"::", position)
    if not pair and (text[position] == _COLON or (position > 0 and text[position - 1] in _ALNUM)):
        return None  # no beginning of a group
    if pair and position > 0 and text[position - 1] in _ALNUM:
        return None  # `std::d` and the like
    run = text[position : min(end, position + _IPV6_CHARS_MAX)]
    first = run.find(b"::")
    second = run.find(b"::", first + 1) if first >= 0 else -1  # no address has two of them
    run = run[:second] if second >= 0 else run
    for length in _group_ends(run):
        behind = text[position + length] if position + length < len(text) else 0
        if behind not in _ALNUM and _is_ipv6(run[:length]):
            return position + length
    return None


def _group_ends(run: bytes) -> list[int]:
    """Lengths at which a group is complete, longest first; no address has more than nine parts between its colons."""
    ends = [index for index in range(1, len(run)) if run[index] in b":." and run[index - 1] != _DOT]
    if run[-1:] != b".":
        ends.append(len(run))
    # An address may end in a pair of colons.
    pairs = [index + 1 for index in ends if run[index : index + 1] == b":" and run[index - 1] == _COLON]
    return sorted({*ends, *pairs}, reverse=True)


@lru_cache(maxsize=4096)
def _is_ipv6(text: bytes) -> bool:
    if text.count(b":") < 2 or b":::" in text or _DIGITS.isdisjoint(text):
        return False
    try:
        ipaddress.IPv6Address(text.decode())
    except ValueError:
        return False
    return True


# --- card numbers -----------------------------------------------------------------------------------------------


def _cards(text: bytes, start: int, end: int) -> Iterator[Span]:
    """Card numbers in a run of digits with single blanks or dashes between: 13 to 19 digits that begin with 2 to 6
    (ISO/IEC 7812) and fulfil Luhn, in one piece or in groups of which the first has four digits."""
    groups = [(start + match.start(), start + match.end()) for match in _CARD_GROUPS.finditer(text[start:end])]
    first = 0
    while first < len(groups):
        last = _card_from(text, groups, first)
        if last is None:
            first += 1
        else:
            yield groups[first][0], groups[last][1]
            first = last + 1


def _card_from(text: bytes, groups: list[Span], first: int) -> int | None:
    """The last group of the longest card number that begins with group `first`."""
    if not 0x32 <= text[groups[first][0]] <= 0x36 or _joined_left(text, groups[first][0]):
        return None
    digits = b""
    best: int | None = None
    for last in range(first, len(groups)):
        start, end = groups[last]
        digits += text[start:end]
        if len(digits) > _CARD_DIGITS_MAX or (last > first and not _group_fits(text, groups, first, last)):
            break
        if len(digits) >= _CARD_DIGITS_MIN and not _joined_right(text, end) and luhn(digits):
            best = last
    return best


def _group_fits(text: bytes, groups: list[Span], first: int, last: int) -> bool:
    """Whether the groups are as on cards, with the same character between all of them."""
    separator = text[groups[last][0] - 1]
    same = separator == text[groups[first + 1][0] - 1]
    return same and groups[first][1] - groups[first][0] == 4 and 1 < groups[last][1] - groups[last][0] <= 7


def _joined_left(text: bytes, start: int) -> bool:
    """Part of a word (a hexadecimal id) or the fraction of a number."""
    if start == 0:
        return False
    before = text[start - 1]
    return before in _ALNUM or (before == _DOT and start > 1 and text[start - 2] in _DIGITS)


def _joined_right(text: bytes, end: int) -> bool:
    if end == len(text):
        return False
    behind = text[end]
    return behind in _ALNUM or (behind == _DOT and end + 1 < len(text) and text[end + 1] in _DIGITS)


_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def luhn(digits: bytes) -> bool:
    """Luhn's check (ISO/IEC 7812-1, annex B).

    >>> luhn(b"4111111111111111"), luhn(b"4111111111111112")
    (True, False)
    """
    values = [byte - 0x30 for byte in reversed(digits)]
    return (sum(values[::2]) + sum(_DOUBLED[value] for value in values[1::2])) % 10 == 0
