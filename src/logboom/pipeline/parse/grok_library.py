r"""The well-known pattern names of Logstash and its descendants, in RE2 syntax.

Where the original uses look-around or atomic groups, the text differs. The matched language is the same, except that a
number does not check the character before it. Knows names and texts only.
"""

from typing import Final

_BASE: Final = {
    "USERNAME": r"[a-zA-Z0-9._-]+",
    "USER": r"%{USERNAME}",
    "EMAILLOCALPART": r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+)*",
    "EMAILADDRESS": r"%{EMAILLOCALPART}@%{HOSTNAME}",
    "INT": r"[+-]?[0-9]+",
    "BASE10NUM": r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)",
    "NUMBER": r"%{BASE10NUM}",
    "BASE16NUM": r"[+-]?(?:0x)?[0-9A-Fa-f]+",
    "BASE16FLOAT": r"\b[+-]?(?:0x)?(?:[0-9A-Fa-f]+(?:\.[0-9A-Fa-f]*)?|\.[0-9A-Fa-f]+)\b",
    "POSINT": r"\b[1-9][0-9]*\b",
    "NONNEGINT": r"\b[0-9]+\b",
    "WORD": r"\b\w+\b",
    "NOTSPACE": r"\S+",
    "SPACE": r"\s*",
    "DATA": r".*?",
    "GREEDYDATA": r".*",
    "QUOTEDSTRING": r'"(?:\\.|[^\\"])*"|\'(?:\\.|[^\\\'])*\'|`(?:\\.|[^\\`])*`',
    "QS": r"%{QUOTEDSTRING}",
    "UUID": r"[A-Fa-f0-9]{8}-(?:[A-Fa-f0-9]{4}-){3}[A-Fa-f0-9]{12}",
    "URN": r"urn:[0-9A-Za-z][0-9A-Za-z-]{0,31}:(?:%[0-9a-fA-F]{2}|[0-9A-Za-z()+,.:=@;$_!*'/?#-])+",
    "BOOL": r"(?:true|false|True|False|TRUE|FALSE)",
}

_NETWORK: Final = {
    "CISCOMAC": r"(?:[A-Fa-f0-9]{4}\.){2}[A-Fa-f0-9]{4}",
    "WINDOWSMAC": r"(?:[A-Fa-f0-9]{2}-){5}[A-Fa-f0-9]{2}",
    "COMMONMAC": r"(?:[A-Fa-f0-9]{2}:){5}[A-Fa-f0-9]{2}",
    "MAC": r"%{CISCOMAC}|%{WINDOWSMAC}|%{COMMONMAC}",
    "IPV4": (r"(?:25[0-5]|2[0-4][0-9]|[0-1]?[0-9]{1,2})(?:\.(?:25[0-5]|2[0-4][0-9]|[0-1]?[0-9]{1,2})){3}"),
    "IPV6": (
        r"(?:(?:[0-9A-Fa-f]{1,4}:){7}(?:[0-9A-Fa-f]{1,4}|:)"
        r"|(?:[0-9A-Fa-f]{1,4}:){6}(?::[0-9A-Fa-f]{1,4}|%{IPV4}|:)"
        r"|(?:[0-9A-Fa-f]{1,4}:){5}(?:(?::[0-9A-Fa-f]{1,4}){1,2}|:%{IPV4}|:)"
        r"|(?:[0-9A-Fa-f]{1,4}:){4}(?:(?::[0-9A-Fa-f]{1,4}){1,3}|(?::[0-9A-Fa-f]{1,4})?:%{IPV4}|:)"
        r"|(?:[0-9A-Fa-f]{1,4}:){3}(?:(?::[0-9A-Fa-f]{1,4}){1,4}|(?::[0-9A-Fa-f]{1,4}){0,2}:%{IPV4}|:)"
        r"|(?:[0-9A-Fa-f]{1,4}:){2}(?:(?::[0-9A-Fa-f]{1,4}){1,5}|(?::[0-9A-Fa-f]{1,4}){0,3}:%{IPV4}|:)"
        r"|(?:[0-9A-Fa-f]{1,4}:)(?:(?::[0-9A-Fa-f]{1,4}){1,6}|(?::[0-9A-Fa-f]{1,4}){0,4}:%{IPV4}|:)"
        r"|:(?:(?::[0-9A-Fa-f]{1,4}){1,7}|(?::[0-9A-Fa-f]{1,4}){0,5}:%{IPV4}|:))(?:%[0-9A-Za-z.]+)?"
    ),
    "IP": r"%{IPV6}|%{IPV4}",
    "HOSTNAME": r"\b[0-9A-Za-z][0-9A-Za-z_-]{0,62}(?:\.[0-9A-Za-z][0-9A-Za-z_-]{0,62})*\.?",
    "HOST": r"%{HOSTNAME}",
    "IPORHOST": r"%{IP}|%{HOSTNAME}",
    "HOSTPORT": r"%{IPORHOST}:%{POSINT}",
    "UNIXPATH": r"(?:/[\w%!$@:.,+~-]*)+",
    "TTY": r"/dev/(?:pts|tty(?:[pq])?)(?:\w+)?/?(?:[0-9]+)?",
    "WINPATH": r"(?:[A-Za-z]+:|\\)(?:\\[^\\?*]*)+",
    "PATH": r"%{UNIXPATH}|%{WINPATH}",
    "URIPROTO": r"[A-Za-z][A-Za-z0-9+.-]+",
    "URIHOST": r"%{IPORHOST}(?::%{POSINT})?",
    "URIPATH": r"(?:/[A-Za-z0-9$.+!*'(){},~:;=@#%&_-]*)+",
    "URIQUERY": r"[A-Za-z0-9$.+!*'|(){},~@#%&/=:;_?\[\]<>-]*",
    "URIPARAM": r"\?%{URIQUERY}",
    "URIPATHPARAM": r"%{URIPATH}(?:\?%{URIQUERY})?",
    "URI": r"%{URIPROTO}://(?:%{USER}(?::[^@]*)?@)?(?:%{URIHOST})?(?:%{URIPATH}(?:\?%{URIQUERY})?)?",
}

_TIME: Final = {
    "MONTH": (
        r"\b(?:[Jj]an(?:uary)?|[Ff]eb(?:ruary)?|[Mm]ar(?:ch)?|[Aa]pr(?:il)?|[Mm]ay|[Jj]une?|[Jj]uly?|[Aa]ug(?:ust)?"
        r"|[Ss]ep(?:t(?:ember)?)?|[Oo]ct(?:ober)?|[Nn]ov(?:ember)?|[Dd]ec(?:ember)?)\b"
    ),
    "MONTHNUM": r"(?:0?[1-9]|1[0-2])",
    "MONTHNUM2": r"(?:0[1-9]|1[0-2])",
    "MONTHDAY": r"(?:0[1-9]|[12][0-9]|3[01]|[1-9])",
    "DAY": r"(?:Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)",
    "YEAR": r"(?:[0-9]{4}|[0-9]{2})",
    "HOUR": r"(?:2[0123]|[01]?[0-9])",
    "MINUTE": r"[0-5][0-9]",
    "SECOND": r"(?:[0-5]?[0-9]|60)(?:[:.,][0-9]+)?",
    "TIME": r"%{HOUR}:%{MINUTE}(?::%{SECOND})",
    "DATE_US": r"%{MONTHNUM}[/-]%{MONTHDAY}[/-]%{YEAR}",
    "DATE_EU": r"%{MONTHDAY}[./-]%{MONTHNUM}[./-]%{YEAR}",
    "ISO8601_TIMEZONE": r"(?:Z|[+-]%{HOUR}(?::?%{MINUTE})?)",
    "ISO8601_SECOND": r"%{SECOND}",
    "TIMESTAMP_ISO8601": (
        r"%{YEAR}-%{MONTHNUM}-%{MONTHDAY}[T ]%{HOUR}:?%{MINUTE}(?::?%{SECOND})?(?:%{ISO8601_TIMEZONE})?"
    ),
    "DATE": r"%{DATE_US}|%{DATE_EU}",
    "DATESTAMP": r"%{DATE}[- ]%{TIME}",
    "TZ": r"(?:[A-Z]{3,4}|[+-][0-9]{2}:?[0-9]{2})",
    "DATESTAMP_RFC822": r"%{DAY} %{MONTH} %{MONTHDAY} %{YEAR} %{TIME} %{TZ}",
    "DATESTAMP_RFC2822": r"%{DAY}, %{MONTHDAY} %{MONTH} %{YEAR} %{TIME} %{ISO8601_TIMEZONE}",
    "DATESTAMP_OTHER": r"%{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{TZ} %{YEAR}",
    "DATESTAMP_EVENTLOG": r"%{YEAR}%{MONTHNUM2}%{MONTHDAY}%{HOUR}%{MINUTE}%{SECOND}",
    "HTTPDATE": r"%{MONTHDAY}/%{MONTH}/%{YEAR}:%{TIME} %{INT}",
    "HTTPDERROR_DATE": r"%{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{YEAR}",
    "SYSLOGTIMESTAMP": r"%{MONTH} +%{MONTHDAY} %{TIME}",
    "UNIX_SECONDS": r"[0-9]{9,11}(?:\.[0-9]+)?",
}

_PROGRAMS: Final = {
    "LOGLEVEL": (
        r"(?:[Aa]lert|ALERT|[Tt]race|TRACE|[Dd]ebug|DEBUG|[Nn]otice|NOTICE|[Ii]nfo(?:rmation)?|INFO(?:RMATION)?"
        r"|[Ww]arn(?:ing)?|WARN(?:ING)?|[Ee]rr(?:or)?|ERR(?:OR)?|[Cc]rit(?:ical)?|CRIT(?:ICAL)?|[Ff]atal|FATAL"
        r"|[Ss]evere|SEVERE|[Ee]merg(?:ency)?|EMERG(?:ENCY)?|[Pp]anic|PANIC|FINE(?:R|ST)?|CONFIG)"
    ),
    "PROG": r"[\x21-\x5a\x5c\x5e-\x7e]+",
    "SYSLOGPROG": r"%{PROG:program}(?:\[%{POSINT:pid:int}\])?",
    "SYSLOGHOST": r"%{IPORHOST}",
    "SYSLOGFACILITY": r"<%{NONNEGINT:facility:int}.%{NONNEGINT:priority:int}>",
    "SYSLOGBASE": r"%{SYSLOGTIMESTAMP:time} (?:%{SYSLOGFACILITY} )?%{SYSLOGHOST:host} %{SYSLOGPROG}:",
    "SYSLOGLINE": r"%{SYSLOGBASE} %{GREEDYDATA:body}",
    "HTTPDUSER": r"%{EMAILADDRESS}|%{USER}",
    "HTTPDREQUEST": (
        r"(?:%{WORD:http.request.method} %{NOTSPACE:url.original}(?: HTTP/%{NUMBER:http.version})?"
        r"|%{DATA:http.request.raw})"
    ),
    "COMMONAPACHELOG": (
        r"%{IPORHOST:client.address} %{HTTPDUSER:ident} %{HTTPDUSER:user.name} \[%{HTTPDATE:time}\] "
        r'"%{HTTPDREQUEST}" (?:-|%{NUMBER:http.response.status_code:int}) (?:-|%{NUMBER:http.response.body.size:int})'
    ),
    "COMBINEDAPACHELOG": r"%{COMMONAPACHELOG} %{QS:http.request.referrer} %{QS:user_agent.original}",
    "HTTPD_COMMONLOG": r"%{COMMONAPACHELOG}",
    "HTTPD_COMBINEDLOG": r"%{COMBINEDAPACHELOG}",
    "JAVACLASS": r"(?:[a-zA-Z$_][a-zA-Z$_0-9]*\.)*[a-zA-Z$_][a-zA-Z$_0-9]*",
    "JAVAFILE": r"(?:[a-zA-Z$_0-9. -]+)",
    "JAVAMETHOD": r"(?:<(?:cl)?init>|[a-zA-Z$_][a-zA-Z$_0-9]*)",
    "JAVATHREAD": r"[A-Z]{2}-Processor[0-9]+",
    "JAVASTACKTRACEPART": r"\s*at %{JAVACLASS:class}\.%{JAVAMETHOD:method}\(%{JAVAFILE:file}(?::%{INT:line:int})?\)",
    "JAVALOGMESSAGE": r"%{GREEDYDATA}",
    "LOG4J_TIMESTAMP": r"%{YEAR}-%{MONTHNUM}-%{MONTHDAY} %{HOUR}:%{MINUTE}:%{SECOND}",
    "REDISTIMESTAMP": r"%{MONTHDAY} %{MONTH} (?:%{YEAR} )?%{TIME}",
    "REDISLOG": r"%{POSINT:pid:int}:[XCSM] %{REDISTIMESTAMP:time} [.*#-] %{GREEDYDATA:body}",
    "POSTGRESQL": r"%{TIMESTAMP_ISO8601:time} %{TZ} \[%{POSINT:pid:int}\] %{WORD:severity}:\s+%{GREEDYDATA:body}",
    "KLOG": (
        r"(?P<severity>[IWEF])(?P<time>[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+)\s+%{INT:pid:int} "
        r"%{NOTSPACE:caller}\] %{GREEDYDATA:body}"
    ),
}

LIBRARY: Final[dict[str, str]] = {**_BASE, **_NETWORK, **_TIME, **_PROGRAMS}
"""Pattern by name; a pattern may use other names."""
