r"""Built-in formats for the lines of well-known programs: patterns that use the library, with their times and names.

Knows layouts and their sources. A program that needs only patterns is one entry here.
"""

from functools import lru_cache, partial
from typing import Final, Literal, NamedTuple

from logboom.pipeline.findings import Part
from logboom.pipeline.parse.formats.base import Format, FormatType, RuleDefaults, RuleModel
from logboom.pipeline.parse.formats.pattern import PatternFormat, compile_patterns, own_patterns


class Layout(NamedTuple):
    """The defaults of `format: NAME`; settings of the rule itself have priority."""

    patterns: tuple[str, ...]
    """The first that matches the whole line provides the fields."""
    time_formats: tuple[str, ...]
    mapping: tuple[tuple[str, tuple[str, ...]], ...] = ()
    severity_scale: Literal["otel", "http"] = "otel"


_QUOTED: Final = r'(?:[^"\\]|\\.)*'
_WORD: Final = r'(?:[^\s"\\?]|\\.)+'
_REQUEST: Final = (
    rf'"(?P<body>(?:(?P<http.request.method>[A-Z]+) (?P<url.path>{_WORD})'
    rf'(?:\?(?P<url.query>(?:[^\s"\\]|\\.)*))?(?: HTTP/(?P<network.protocol.version>[0-9.]+))?|{_QUOTED}))"'
)
_COMMON: Final = (
    r"(?:(?P<server.address>[^\s:]+):(?P<server.port>\d+) )?%{NOTSPACE:client.address} "
    r"(?:-|%{NOTSPACE:ident}) (?:-|(?P<user.name>\S.*?)) \[(?P<time>[^\]]+)\] "
    rf"{_REQUEST} (?:-|%{{INT:http.response.status_code:int}}) (?:-|%{{INT:http.response.body.size:int}})"
)
_COMBINED: Final = (
    rf'{_COMMON} "(?:-|(?P<http.request.header.referer>{_QUOTED}))" "(?:-|(?P<user_agent.original>{_QUOTED}))"'
    rf'(?: "(?:-|(?P<http.request.header.x_forwarded_for>{_QUOTED}))")?(?: (?P<request_time>[0-9.]+))?'
)
_ACCESS: Final = Layout(
    (_COMBINED, _COMMON),
    ("%d/%b/%Y:%H:%M:%S %z",),
    (("severity", ("http.response.status_code",)),),
    "http",
)
_ANDROID_TIME: Final = r"(?P<time>(?:[0-9]{4}-)?[0-9]{2}-[0-9]{2} [0-9:]{8}\.[0-9]{3,9})"
_ANDROID_TEXT: Final = r":(?: (?P<body>.*))?"
_JAVA_TIME: Final = r"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}[,.][0-9]{1,9})"
_JAVA_LEVEL: Final = r"(?P<severity>TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|SEVERE|CONFIG|FINE(?:R|ST)?|OFF|ALL)"

LAYOUTS: Final[dict[str, Layout]] = {
    "apache_access": _ACCESS,
    "nginx_access": _ACCESS,
    "access_common": _ACCESS._replace(patterns=(_COMMON,)),
    "access_combined": _ACCESS._replace(patterns=(_COMBINED,)),
    # httpd 2.2 and older write no module; 2.4 writes `[module:level] [pid n:tid n]`.
    "apache_error": Layout(
        (
            (
                r"\[(?P<time>[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:.]+ [0-9]{4})\] "
                r"\[(?:(?P<module>[\w-]*):)?(?P<severity>\w+)\]"
                r"(?: \[pid %{INT:process.pid:int}(?::tid %{INT:thread.id:int})?\])?"
                r"(?: \[client (?P<client.address>[^\s\]]+?)(?::%{INT:client.port:int})?\])? ?(?P<body>.*)"
            ),
        ),
        ("%a %b %e %H:%M:%S.%f %Y", "%a %b %e %H:%M:%S %Y"),
    ),
    "nginx_error": Layout(
        (
            (
                r"(?P<time>[0-9]{4}/[0-9]{2}/[0-9]{2} [0-9:]{8}) \[(?P<severity>\w+)\] "
                r"%{INT:process.pid:int}#%{INT:thread.id:int}: (?:\*%{INT:connection:int} )?"
                r"(?P<body>.*?(?:, client: (?P<client.address>[^\s,]+))?(?:, server: (?P<server.address>[^\s,]*))?"
                r'(?:, request: "(?P<request>(?:[^"\\]|\\.)*)")?(?:, .*)?)'
            ),
        ),
        ("%Y/%m/%d %H:%M:%S",),
    ),
    # ZooKeeper's own log4j.properties: %d{ISO8601} [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m
    "zookeeper": Layout(
        (
            (
                rf"{_JAVA_TIME}(?: \[myid:(?P<myid>[^\]]*)\])? - {_JAVA_LEVEL} +"
                r"\[(?P<thread>.*):(?P<component>[^\s:@]*)@(?P<line>-?[0-9]+|\?)\] - (?P<body>.*)"
            ),
        ),
        ("iso8601",),
    ),
    # Hadoop's %d{yyMMdd HHmmss} %p %c: %m with the thread's number, as HDFS of 2008 wrote it.
    "hdfs": Layout(
        (
            (
                r"(?P<time>[0-9]{6} [0-9]{6}) %{INT:process.pid:int} (?P<severity>[A-Z]+) "
                r"(?P<component>[^\s:]+): (?P<body>.*)"
            ),
        ),
        ("%y%m%d %H%M%S",),
    ),
    # Common layouts: Hadoop and Spark, Kafka, Logback's default, Spring Boot, log4j's TTCC with a date.
    "log4j": Layout(
        (
            rf"\[{_JAVA_TIME}\] {_JAVA_LEVEL} +(?P<body>.*?)(?: \((?P<component>[\w.$]+)\))?",
            (
                rf"{_JAVA_TIME}(?P<zone>Z|[+-][0-9:]+)? +{_JAVA_LEVEL} +(?P<process.pid>[0-9]+) --- "
                r"(?:\[(?P<application>[^\]]*)\] )?\[ *(?P<thread>[^\]]*)\] (?P<component>\S+) *: (?P<body>.*)"
            ),
            rf"{_JAVA_TIME} +{_JAVA_LEVEL} +\[(?P<thread>.*?)\] +(?P<component>[\w.$/-]+)(?::| -) (?P<body>.*)",
            rf"{_JAVA_TIME} +\[(?P<thread>.*?)\] +{_JAVA_LEVEL} +(?P<component>[\w.$/-]+)(?::| -) (?P<body>.*)",
            rf"(?P<time>[0-9/]{{8}} [0-9:]{{8}}) {_JAVA_LEVEL} +(?P<component>[\w.$]+): (?P<body>.*)",
            rf"{_JAVA_TIME} +{_JAVA_LEVEL} +(?P<component>[\w.$/-]+)(?::| -) (?P<body>.*)",
        ),
        ("iso8601", "%y/%m/%d %H:%M:%S"),
    ),
    # oslo.log's default: asctime.msecs process levelname name [request_id user_identity] message,
    # with the name of the file in front where several were gathered.
    "openstack": Layout(
        (
            (
                r"(?:(?P<log.file.name>\S+) )?(?P<time>[0-9-]{10} [0-9:]{8}\.[0-9]+) %{INT:process.pid:int} "
                r"(?P<severity>[A-Z]+) (?P<component>\S+) \[(?P<request>[^\]]*)\] (?P<body>.*)"
            ),
            (
                r"(?:(?P<log.file.name>\S+) )?(?P<time>[0-9-]{10} [0-9:]{8}\.[0-9]+) %{INT:process.pid:int} "
                r"(?P<severity>[A-Z]+) (?P<component>\S+) (?P<body>.*)"
            ),
        ),
        ("iso8601",),
    ),
    "dpkg": Layout(
        (
            (
                r"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}) (?P<body>(?P<action>[\w-]+)(?: .*?)?"
                r"(?: (?P<package>[a-z0-9][a-z0-9+.-]*):(?P<architecture>[a-z0-9]+)(?: .*)?)?)"
            ),
        ),
        ("%Y-%m-%d %H:%M:%S",),
    ),
    # glog, klog: Lmmdd hh:mm:ss.uuuuuu threadid file:line] msg
    "klog": Layout(
        (
            (
                r"(?P<severity>[IWEF])(?P<time>[0-9]{4} [0-9:]{8}\.[0-9]+) +%{INT:thread.id:int} "
                r"(?P<code.location>[^\]]+)\] (?P<body>.*)"
            ),
        ),
        ("%m%d %H:%M:%S.%f",),
    ),
    # logcat -v threadtime (its default), time or brief; a file begins with a line for each of its buffers.
    "logcat": Layout(
        (
            (
                rf"{_ANDROID_TIME} +(?:\S+ +)?%{{INT:process.pid:int}} +%{{INT:thread.id:int}} (?P<severity>[VDIWEFA]) "
                rf"(?P<component>.*?) *{_ANDROID_TEXT}"
            ),
            (
                rf"(?:{_ANDROID_TIME} +)?(?P<severity>[VDIWEFA])/(?P<component>.*?) *"
                rf"\( *%{{INT:process.pid:int}}\){_ANDROID_TEXT}"
            ),
            r"(?P<body>-{5,} (?:beginning of|switch to) \w+)",
        ),
        ("%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f"),
    ),
    "redis": Layout(
        (
            (
                r"%{INT:process.pid:int}:(?P<role>[XCSM]) (?P<time>[0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8}\.[0-9]+) "
                r"[.*#-] (?P<body>.*)"
            ),
        ),
        ("%d %b %Y %H:%M:%S.%f",),
    ),
    "postgresql": Layout(
        (
            (
                r"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+ \S+) \[%{INT:process.pid:int}\] (?:(?P<user.name>\S+?)@"
                r"(?P<db.namespace>\S+) )?(?P<severity>[A-Z]+[0-9]?): +(?P<body>.*)"
            ),
        ),
        ("iso8601",),
    ),
}


_TIMES_OF_ONES_OWN: Final = ("hdfs", "klog", "logcat", "redis")
"""Formats whose times are only recognised with an explicit time format, which the time of a body does not have."""


def _format_type(name: str, layout: Layout) -> FormatType[RuleModel]:
    def compile_layout(model: RuleModel, part: Part) -> Format | None:
        return compile_patterns(name, layout.patterns, {}, part)

    defaults = RuleDefaults(layout.time_formats, layout.mapping, layout.severity_scale)
    of_bodies = None if name in _TIMES_OF_ONES_OWN else partial(_node, name)
    return FormatType(name, RuleModel, PatternFormat, compile_layout, defaults, of_bodies)


@lru_cache
def _node(name: str) -> Format:
    return own_patterns(name, LAYOUTS[name].patterns)


FORMATS: Final = tuple(_format_type(name, layout) for name, layout in LAYOUTS.items())
