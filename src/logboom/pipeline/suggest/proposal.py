"""A pipeline's file proposed from sample lines, with what its rules read of them.

Knows formats, headers and templates. What it writes is compiled and run over the lines before anybody sees it: a
pattern that is not accepted is left out.
"""

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.schema import HEADERS
from logboom.pipeline.parse.formats.registry import format_types
from logboom.pipeline.suggest.delimited import columns_of
from logboom.pipeline.suggest.header import (
    Header,
    header_of,
    level_parts,
    level_place,
    with_one_level,
    without_padding,
    words_behind,
)
from logboom.pipeline.suggest.templates import Template, templates_of
from logboom.pipeline.transforms.parse import ParseTransform

LINES_MAX: Final = 20_000
"""So many lines are looked at; of a larger file, lines from all over it."""
_NOT_ASKED: Final = frozenset(("text", "pattern", "csv", "key_value"))
_FORMAT_LEAST: Final = 0.02
"""A built-in format that reads fewer of the lines than this part is not proposed."""
_PATTERNS_MAX: Final = 30
_PATTERN_LEAST: Final = 3
"""Lines that a template must have."""
_SURE: Final = 20
"""A word that this many lines of a template share, all of them, belongs to it though it looks as if it changed."""
_OF_ONE_RUN: Final = re.compile(
    r"\A\W*[0-9]+\W*\Z|\b[0-9a-f]{8}-[0-9a-f]{4}-|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{12,}\b", re.IGNORECASE
)
"""A number by itself, or an id: of a process, say, and others in the next file, however often it is in this one."""
_LINKS: Final = frozenset(("at", "by", "for", "from", "in", "is", "of", "on", "the", "to", "via", "was", "with"))
_UNITS: Final = {
    **{unit: unit for unit in ("ns", "us", "ms", "seconds", "minutes", "bytes", "kb", "mb", "gb")},
    **dict.fromkeys(("s", "sec", "secs"), "seconds"),
}
"""What a number in front of one is called, where nothing else names it."""
_WITH_UNIT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?([A-Za-z]+)")
_CALLED: Final = {"INT": "number", "NUMBER": "number", "IP": "address", "NOTSPACE": "value"}
_LEADING: Final = ("prefix", "prefix_2")
"""What words in front of a time are called."""
_RESERVED: Final = frozenset(("time", "severity", "body", "service", "host", *_LEADING))
_SHOWN: Final = 20
"""Events of each batch on the screen; a file of the past may be one batch of half a million."""
_SIGNS: Final = "=:[](){}\"'<>,;.#"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_NAME_IN_FRONT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_READ_AT_MICROS: Final = 1_735_603_200_000_000
"""Times without a year are read by that of the record: 2024-12-31, of a year that has a 29 February."""
_ESCAPED_IN_YAML: Final = re.compile(
    "[^\\t\\x20-\\x7e\\xa0-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010ffff]"
)
"""All but the printable characters of YAML 1.2; of these too the ends of lines and the byte order mark."""

Rule = dict[str, Any]


class Proposal(NamedTuple):
    """What is proposed, and what it reads."""

    yaml: str
    lines: int
    read: int


def propose(lines: Sequence[str], name: str) -> Proposal:
    """A pipeline's file for lines like these. `name`: of the pipeline and its stream."""
    rules: list[Rule] = []
    left = [line for line in lines if line.strip()]
    counts: list[int] = []
    while left and (found := _best_format(left)) is not None:
        form, read = found
        rules.append({"format": form})
        counts.append(len(left) - len(read))
        left = read
    for rules_for in (_columns_rules, _pattern_rules):
        for rule in rules_for(left):
            before = len(left)
            left = _unread(rule, left)
            if len(left) < before:
                rules.append(rule)
                counts.append(before - len(left))
    if not rules:
        rules.append({"format": "text"})
        counts.append(len(left))
        left = []
    total = sum(counts) + len(left)
    return Proposal(_written(name, rules, counts, total), total, total - len(left))


def _best_format(lines: Sequence[str]) -> tuple[str, list[str]] | None:
    """The built-in format that reads most of the lines, and the lines that it does not read."""
    best: tuple[str, list[str]] | None = None
    for form in format_types():
        if form in _NOT_ASKED:
            continue
        left = _unread({"format": form}, lines)
        if best is None or len(left) < len(best[1]):
            best = form, left
    read = 0 if best is None else len(lines) - len(best[1])
    return best if read >= max(1, _FORMAT_LEAST * len(lines)) else None


def _unread(rule: Rule, lines: Sequence[str]) -> list[str]:
    """The lines that a rule does not read; all of them where it is not a rule."""
    try:
        plan = compile_pipeline(_document("p", [rule]), "proposal")
    except SettingsError:
        return list(lines)
    (node,) = plan.transforms
    assert isinstance(node, ParseTransform)
    reasons = node.run(_records(lines), {}).column("dead_reason").to_pylist()
    return [line for line, reason in zip(lines, reasons, strict=True) if reason is not None]


def _records(lines: Sequence[str]) -> pa.RecordBatch:
    count = len(lines)
    columns = {
        "source": pa.array(["lines"] * count, pa.string()),
        "stream": pa.array(["lines"] * count, pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([_READ_AT_MICROS] * count, pa.timestamp("us", tz="UTC")),
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([line.encode(errors="replace") for line in lines], pa.binary()),
        "headers": pa.nulls(count, HEADERS),
    }
    return pa.RecordBatch.from_pydict(columns)


def _columns_rules(lines: Sequence[str]) -> Iterator[Rule]:
    """A rule for lines of columns, where they have any."""
    columns = columns_of(lines) if lines else None
    if columns is None:
        return
    rule: Rule = {"format": "csv", "columns": list(columns.names), "delimiter": columns.delimiter}
    if columns.time is not None and columns.time.format not in (None, "epoch"):
        rule["time_format"] = columns.time.format
    yield rule


# --- patterns ----------------------------------------------------------------------------------------------------


def _pattern_rules(lines: Sequence[str]) -> Iterator[Rule]:
    """One rule for each header that many of the lines have, its patterns from the most exact to any text."""
    left = list(lines)
    while left:
        header = header_of(left)
        words = [found for line in left if (found := words_behind(header, line)) is not None]
        rule = _rule(header, words)
        yield rule
        rest = [line for line in left if words_behind(header, line) is None]
        if header is None or len(rest) == len(left):
            return
        left = rest


def _rule(header: Header | None, lines: Sequence[Sequence[str]]) -> Rule:
    level = level_place(lines) if header is not None else None
    gap = " "
    if level is not None:
        lines, is_padded = without_padding(lines, level)
        lines = with_one_level(lines, level)
        gap = " +" if is_padded else " "
    start = "" if header is None else _start(header)
    frequent = [found for found in templates_of(lines) if found.count >= _PATTERN_LEAST][:_PATTERNS_MAX]
    exact_first = sorted(frequent, key=lambda found: sum(word is None for word in found.words))
    patterns = [start + _expression(found, level, gap) for found in exact_first if None in found.words]
    rule: Rule = {"format": "pattern", "pattern": [each for each in patterns if _is_accepted(each)]}
    if header is not None:
        rule["pattern"].append(start + _any_text(lines, level, gap))
        if header.time.format is not None and header.time.format != "epoch":
            rule["time_format"] = header.time.format
    elif not rule["pattern"]:
        rule = {"format": "text"}
    return rule


def _start(header: Header) -> str:
    lead = "".join(f"%{{NOTSPACE:{name}}} +" for name in _LEADING[: header.lead])
    return lead + _literal(header.before) + header.time.pattern + _literal(header.behind) + header.gap


def _is_accepted(pattern: str) -> bool:
    try:
        compile_pipeline(_document("p", [{"format": "pattern", "pattern": pattern}]), "proposal")
    except SettingsError:
        return False
    return True


def _any_text(lines: Sequence[Sequence[str]], level: int | None, gap: str) -> str:
    if level is None:
        return "%{GREEDYDATA:body}"
    before, behind = level_parts(next(line[level] for line in lines if len(line) > level))
    front = "%{NOTSPACE} " * level
    return f"{front}{re.escape(before)}%{{LOGLEVEL:severity}}{re.escape(behind)}{gap}%{{GREEDYDATA:body}}"


def _expression(template: Template, level: int | None, gap: str) -> str:
    """The words of a template; what changes becomes fields, and all behind the severity the body too. `gap`: the blanks
    behind the severity."""
    names: set[str] = set(_RESERVED)
    parts = []
    for place, word in enumerate(template.words):
        if place == level:
            before, behind = level_parts(template.samples[0][place])
            parts.append(f"{re.escape(before)}%{{LOGLEVEL:severity}}{re.escape(behind)}")
        elif word is not None:
            parts.append(_literal(word))
        else:
            parts.append(_field(template, place, names, named=place - 1 != level))
    if level is None:
        return f"(?P<body>{' '.join(parts)})"
    return f"{' '.join(parts[: level + 1])}{gap}(?P<body>{' '.join(parts[level + 1 :])})"


def _field(template: Template, place: int, names: set[str], *, named: bool) -> str:
    """A word that changes: what is the same at its ends, and a field of the kind that its values have."""
    values = template.values(place)
    if len(values) >= _SURE and len(set(values)) == 1 and not _OF_ONE_RUN.search(values[0]):
        return _literal(values[0])
    start, end = _common(values), _common([value[::-1] for value in values])[::-1]
    inner = [value[len(start) : len(value) - len(end)] for value in values]
    if any(len(value) <= len(start) + len(end) for value in values):
        start, end, inner = "", "", values
    if (unit := _unit_behind(inner)) is not None:
        end, inner = f"{unit}{end}", [value.removesuffix(unit) for value in inner]
    kind = _kind(inner)
    before = template.words[place - 1] if place and named else None
    behind = template.words[place + 1] if place + 1 < len(template.words) else None
    own = next(reversed(_NAME_IN_FRONT.findall(start)), "")
    name = _named((own if "=" in start or ":" in start else "", before or "", own), kind[0], behind or "", names)
    return f"{_literal(start)}%{{{kind[0]}:{name}{kind[1]}}}{_literal(end)}"


def _common(values: Sequence[str]) -> str:
    """What all values begin with, up to a sign: letters and digits at its end belong to the value."""
    least, most = min(values), max(values)
    same = next((at for at, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least))
    found = least[:same] if least != most else least[: len(least) - len(least.lstrip(_SIGNS))]
    return re.sub(r"[\w.]+\Z", "", found)


def _unit_behind(values: Sequence[str]) -> str | None:
    """The unit that all of these have right behind their number, as in `445ms`."""
    units = {found[1] if (found := _WITH_UNIT.fullmatch(value)) else "" for value in values}
    unit = units.pop()
    return unit if not units and unit.lower() in _UNITS else None


def _named(in_front: Sequence[str], kind: str, behind: str, names: set[str]) -> str:
    """`user=` in front of a value names it, else the word before it, else `worker-`, else its unit, else its kind."""
    words = (word.strip(_SIGNS) for word in in_front)
    found = next((word for word in words if _NAME.fullmatch(word) and word.lower() not in _LINKS), "")
    unit = behind.strip(_SIGNS).lower()
    name = re.sub(r"\W", "_", found.lower()) or _UNITS.get(unit, _CALLED[kind])
    number, free = 1, name
    while free in names:
        number += 1
        free = f"{name}_{number}"
    names.add(free)
    return free


def _kind(values: Sequence[str]) -> tuple[str, str]:
    if all(re.fullmatch(r"[+-]?[0-9]{1,18}", value) for value in values):
        is_number = not any(re.match(r"[+-]?0[0-9]", value) for value in values)
        return ("INT", ":int") if is_number else ("INT", "")
    if all(re.fullmatch(r"[+-]?[0-9]+\.[0-9]+|[+-]?[0-9]{1,15}", value) for value in values):
        return "NUMBER", ":float"
    return ("IP", "") if all(map(_is_address, values)) else ("NOTSPACE", "")


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _literal(text: str) -> str:
    return re.escape(text).replace("\\ ", " ")


# --- the file ----------------------------------------------------------------------------------------------------


def _document(name: str, rules: Sequence[Mapping[str, Any]]) -> str:
    tree = {
        "name": name,
        "sources": {"lines": {"type": "stream", "stream": name}},
        "transforms": {"parsed": {"type": "parse", "inputs": ["lines"], "rules": rules}},
        "sinks": {"screen": {"type": "console", "inputs": ["parsed"]}},
    }
    return msgspec.json.encode(tree).decode()


def _written(name: str, rules: Sequence[Rule], counts: Sequence[int], total: int) -> str:
    """The file as a person writes it, each rule with what it has read of the lines."""
    found = [
        "# Proposed by `logboom pipeline suggest` from sample lines. Look at every rule: give fields names, leave",
        "# out patterns that you do not need, and name the timezone where times have none.",
        f"name: {name}",
        "sources:",
        f"  lines: {{type: stream, stream: {name}}}",
        "transforms:",
        "  parsed:",
        "    type: parse",
        "    inputs: [lines]",
        "    rules:",
    ]
    for rule, count in zip(rules, counts, strict=True):
        found.append(f"      - format: {rule['format']}  # {count:,} of {total:,} lines")
        if "time_format" in rule:
            found.append(f"        time_format: {json.dumps(rule['time_format'])}")
        if "columns" in rule:
            found.append(f"        delimiter: {json.dumps(rule['delimiter'])}")
            found.append(f"        columns: [{', '.join(rule['columns'])}]")
        if "pattern" in rule:
            found.append("        pattern:")
            found += [f"          - {_quoted(pattern)}" for pattern in rule["pattern"]]
    return "\n".join(
        [*found, "sinks:", f"  screen: {{type: console, inputs: [parsed], limit: {_SHOWN}}}  # of each batch", ""]
    )


def _quoted(text: str) -> str:
    """A pattern in YAML: in single quotes, where backslashes are themselves; with escapes where a character may not
    stand there, or would end the line.
    """
    if not _ESCAPED_IN_YAML.search(text):
        return "'" + text.replace("'", "''") + "'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + _ESCAPED_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'
