r"""The formats `syslog_rfc3164`, with the variants that programs use, with or without PRI, and `syslog_rfc5424`.

Knows the two headers. Must not know severities of anything else. A line needs a PRI or a time at its start to be RFC
3164. The program's name becomes the service, its process number `process.pid`, the PRI `syslog.facility` and the
severity.
"""

import re
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.normalise.rows import Fields, Row
from logboom.pipeline.normalise.severity import SYSLOG_TEXTS
from logboom.pipeline.parse.formats.base import FormatNode, plain_format
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE, text_lines

FACILITIES: Final = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp"),
    *("audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"),
)
_PRI_MAX: Final = 191

_PRI: Final = r"(?:[0-9]{1,7} )?<(?P<pri>[0-9]{1,3})>"
_BSD_TIME: Final = (
    r"(?P<time>[A-Z][a-z]{2} [ 0-9][0-9] (?:[0-9]{4} )?[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)"
)
_HOST: Final = r"(?:[^\s:\[\]]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f.]+)"
# macOS adds in parentheses, after the number, which other process or service a line is about: `launchd[1] (com.x): `.
# The name may have dashes before it (`-- root`) or a version after it (`syslogd 1.4.1`), then a number in brackets.
_TAG: Final = r"(?:-- ?)?[\w./()@+,$#&*-]+(?: [0-9][\w.-]*)?"
_RFC3164: Final = (
    rf"(?s)\A(?:{_PRI})?(?:{_BSD_TIME}:? +)?"
    rf"(?:(?P<host>{_HOST}) +(?P<tag>{_TAG})(?:\[(?P<pid>[^\]\s]*)\](?: \((?P<about>[^()]*)\))?)?: ?(?P<body>.*)"
    rf"|(?P<tag2>{_TAG})(?:\[(?P<pid2>[^\]\s]*)\](?: \((?P<about2>[^()]*)\))?)?: ?(?P<body2>.*)"
    rf"|(?P<rest>(?P<host3>{_HOST}) +(?P<body3>.*))|(?P<body4>.*))\z"
)
_SD: Final = r'(?:\[[^\s=\]"]{1,256}(?: +[^\s=\]"]{1,256}="(?:[^"\\\]]|\\.)*")*\])+'
_RFC5424: Final = (
    rf"(?s)\A{_PRI}1 (?P<time>\S{{1,64}}) (?P<host>\S{{1,255}}) (?P<tag>\S{{1,255}}) (?P<pid>\S{{1,128}}) "
    rf"(?P<msgid>\S{{1,64}}) (?P<sd>-|{_SD})(?: ?(?P<body>.*))?\z"
)
_SD_ELEMENT: Final = re.compile(r'\[([^\s=\]"]+)((?: +[^\s=\]"]+="(?:[^"\\\]]|\\.)*")*)\]', re.DOTALL)
_SD_PARAM: Final = re.compile(r'([^\s=\]"]+)="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_SD_ESCAPE: Final = re.compile(r'\\(["\\\]])')
_NIL: Final = "-"


class SyslogFormat(FormatNode, frozen=True, kw_only=True, tag="syslog"):
    """RFC 3164 (with or without PRI, as files have it) or RFC 5424."""

    rfc: Literal[3164, 5424]

    def read_rows(self, values: pa.Array) -> list[Row]:
        lines = text_lines(values)
        if self.rfc == 5424:
            return _read(lines, _RFC5424, _fields_5424)
        return _read(lines, _RFC3164, _fields_3164)


def _read(lines: pa.Array, expression: str, build: Any) -> list[Row]:
    groups = pc.extract_regex(lines, expression)
    columns = [pc.struct_field(groups, field.name).to_pylist() for field in groups.type]
    matched = groups.is_valid().to_pylist()
    missing = lines.is_null().to_pylist() if lines.null_count else None
    names = [field.name for field in groups.type]
    rows: list[Row] = []
    for index, row in enumerate(zip(*columns, strict=True)):
        if matched[index]:
            rows.append(build(dict(zip(names, row, strict=True))))
        else:
            rows.append(NO_VALUE if missing is not None and missing[index] else _no_header(lines[index].as_py()))
    return rows


def _no_header(line: str) -> str:
    return EMPTY if not line else "has no syslog header"


def _fields_3164(part: dict[str, str]) -> Row:
    if not part["pri"] and not part["time"]:
        return "begins with neither a priority nor a time" if any(part.values()) else EMPTY
    found: Fields = {}
    fault = _add_priority(found, part["pri"])
    if fault:
        return fault
    _add(found, "time", part["time"])
    unsure = "" if part["time"] else part["rest"]  # without a time the first word may be anything
    _add(found, "host", part["host"] or ("" if unsure else part["host3"]))
    _add(found, "service", part["tag"] or part["tag2"])
    _add_pid(found, part["pid"] or part["pid2"])
    _add(found, "syslog.about", part["about"] or part["about2"])
    found["body"] = part["body"] or part["body2"] or unsure or part["body3"] or part["body4"]
    return found


def _fields_5424(part: dict[str, str]) -> Row:
    found: Fields = {}
    fault = _add_priority(found, part["pri"])
    if fault:
        return fault
    for name, value in (("time", part["time"]), ("host", part["host"]), ("service", part["tag"])):
        _add(found, name, value if value != _NIL else "")
    if part["pid"] != _NIL:
        _add_pid(found, part["pid"])
    if part["msgid"] != _NIL:
        found["syslog.msgid"] = part["msgid"]
    if part["sd"] != _NIL:
        found["syslog.structured_data"] = structured_data(part["sd"])
    found["body"] = part["body"].removeprefix("\ufeff")
    return found


def _add(found: Fields, name: str, value: str) -> None:
    if value:
        found[name] = value


def _add_pid(found: Fields, pid: str) -> None:
    if pid:
        found["process.pid"] = int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 10 else pid


def _add_priority(found: Fields, pri: str) -> str | None:
    if not pri:
        return None
    number = int(pri)
    if number > _PRI_MAX:
        return f"has the priority {number}; the highest valid one is {_PRI_MAX}"
    found["syslog.facility"] = FACILITIES[number >> 3]
    found["severity"] = SYSLOG_TEXTS[number & 7]
    return None


def structured_data(text: str) -> dict[str, dict[str, Any]]:
    """Elements by id, parameters by name; a repeated parameter is a list (RFC 5424, 6.3.3)."""
    elements: dict[str, dict[str, Any]] = {}
    for element in _SD_ELEMENT.finditer(text):
        params = elements.setdefault(element[1], {})
        for name, raw in _SD_PARAM.findall(element[2]):
            value = _SD_ESCAPE.sub(r"\1", raw)
            if name not in params:
                params[name] = value
            elif isinstance(params[name], list):
                params[name].append(value)
            else:
                params[name] = [params[name], value]
    return elements


FORMATS: Final = (
    plain_format("syslog_rfc3164", SyslogFormat(rfc=3164)),
    plain_format("syslog_rfc5424", SyslogFormat(rfc=5424)),
)
