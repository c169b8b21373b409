"""Names of the Elastic Common Schema 8.17 that say what kind of value is there.

They are of `generated/csv/fields.csv` of github.com/elastic/ecs, v8.17.0. Attributes may have any name; one of these
with a value of another kind would make a document that no index of ECS takes.
"""

from typing import Final

_SIDES: Final = ("client", "server", "source", "destination")

ECS_NUMBERS: Final = (
    *(f"{side}.{what}" for side in _SIDES for what in ("port", "bytes", "packets")),
    *(f"http.{side}.{what}" for side in ("request", "response") for what in ("bytes", "body.bytes")),
    "http.response.status_code",
    "url.port",
    "network.bytes",
    "network.packets",
    "process.pid",
    "process.pgid",
    "process.exit_code",
    "process.thread.id",
    "process.parent.pid",
    "event.duration",
    "event.sequence",
    "log.origin.file.line",
    "log.syslog.priority",
    "log.syslog.facility.code",
    "log.syslog.severity.code",
)
"""Whole numbers."""

ECS_ADDRESSES: Final = tuple(f"{side}.ip" for side in _SIDES)
"""IP addresses."""

ECS_OBJECTS: Final = (
    "agent",
    "client",
    "cloud",
    "container",
    "data_stream",
    "destination",
    "device",
    "dns",
    "ecs",
    "email",
    "error",
    "event",
    "faas",
    "file",
    "group",
    "host",
    "http",
    "http.request",
    "http.request.body",
    "http.response",
    "http.response.body",
    "log",
    "log.file",
    "log.origin",
    "log.origin.file",
    "log.syslog",
    "log.syslog.facility",
    "log.syslog.severity",
    "network",
    "observer",
    "orchestrator",
    "organization",
    "package",
    "process",
    "process.parent",
    "process.thread",
    "registry",
    "related",
    "rule",
    "server",
    "service",
    "source",
    "span",
    "threat",
    "tls",
    "trace",
    "transaction",
    "url",
    "user",
    "user_agent",
    "volume",
    "vulnerability",
)
"""What has fields inside."""
