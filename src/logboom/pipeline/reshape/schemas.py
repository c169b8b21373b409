"""Events in the fields of a published schema: `in_schema_batch` is the work of a reshape's `schema`.

Attributes are known by OpenTelemetry's names, which the formats of a parse give. What a schema has no field for is
kept: under its own name, in OCSF in `unmapped`. Knows an event's columns. Must not know who reads the result.

- ecs: Elastic Common Schema 8.17 (elastic.co/docs/reference/ecs/ecs-field-reference). Names have dots, as the sink
  `elasticsearch` writes them. An attribute under the name of a field that cannot hold its value gets `_2`, so that no
  document is refused for it.
- ocsf: Open Cybersecurity Schema Framework 1.3.0 (schema.ocsf.io/1.3.0): HTTP Activity (4002), which requires a request
  and a response, where the event has a method and a status of HTTP, else Base Event (0). What its types do not hold is
  in `unmapped`.
- cim: the fields of Splunk's Common Information Model 6.0 (docs.splunk.com/Documentation/CIM/6.0.0/User/Web), those of
  the data model Web among them.

tests/pipeline_core/test_schemas.py has the tables of the schemas that outputs are held to.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa

from logboom.pipeline.event.names import find_attribute
from logboom.pipeline.event.schema import MICROSECONDS
from logboom.pipeline.normalise.memory import no_collections
from logboom.pipeline.reshape.ecs_fields import ECS_ADDRESSES, ECS_NUMBERS, ECS_OBJECTS
from logboom.pipeline.reshape.edits import Tree, free_name, take, to_int, to_text

SchemaName = Literal["ecs", "ocsf", "cim"]
OCSF_VERSION: Final = "1.3.0"
_HTTP_ACTIVITY: Final = 4_002
_METHODS: Final = ("", "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE")
"""By `activity_id` of HTTP Activity."""
_OTHER: Final = 99
_TEXT_MAX: Final = 65_535
"""Characters of OCSF's string_t."""
_ADDRESS_MAX: Final = 40
_LONG_MAX: Final = 2**63
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # all times are in UTC, and written so
_YEAR_1, _YEAR_10_000 = -62_135_596_800_000_000, 253_402_300_800_000_000
_PORT_MAX: Final = 65_535
_HOSTNAME: Final = re.compile(
    r"(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9])\.)*([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9\-]*[A-Za-z0-9])"
)
"""OCSF's hostname_t."""
_CLIENT_ERROR: Final = 400
_SEVERITIES: Final = ("Unknown", "Informational", "Low", "Medium", "High", "Critical", "Fatal")
_COLUMNS: Final = (
    "time",
    "observed_time",
    "severity_number",
    "severity_text",
    "service",
    "host",
    "body",
    "trace_id",
    "span_id",
    "event_id",
    "source",
)
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

Event = Mapping[str, Any]
"""The columns of one event by name: times in microseconds since 1970."""


class Schema(NamedTuple):
    """What events are brought into."""

    name: str
    """A SchemaName."""
    into: str
    """`attributes` replaces them all; `body` leaves them, and gets the fields as one JSON text."""
    product: str | None
    """Who reports the events, in OCSF and CIM; None for the event's service."""
    vendor: str


def _text(value: Any) -> str | None:
    """A text, a number or true and false as a text; None for what has parts."""
    return None if isinstance(value, dict | list) else to_text(value)


class _Field(NamedTuple):
    """A field of a schema, and the attributes that it is taken of: the first that is there."""

    name: str
    attributes: tuple[str, ...]
    convert: Callable[[Any], Any] = _text
    """Gives None for a value that the field cannot hold; the attribute then stays."""


def _int(value: Any) -> int | None:
    """A whole number of 64 bits; None for what is none, as a number with a fraction, which would be cut off."""
    found = None if isinstance(value, bool) else to_int(value)
    if not isinstance(found, int) or abs(found) >= _LONG_MAX:
        return None
    is_exact = value == found or float(value) == found or str(value).strip().lstrip("+") == str(found)
    return found if is_exact else None


def _address(value: Any) -> str | None:
    """An IP address as it is written; None for a name."""
    try:
        ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        return None
    return str(value)


def _short(value: Any) -> str | None:
    text = _text(value)
    return None if text is None or len(text) > _TEXT_MAX else text


def _short_address(value: Any) -> str | None:
    address = _address(value)
    return None if address is None or len(address) > _ADDRESS_MAX else address


def _hostname(value: Any) -> str | None:
    text = _short(value)
    return text if text is not None and _HOSTNAME.fullmatch(text) else None


def _port(value: Any) -> int | None:
    number = _int(value)
    return number if number is not None and 0 <= number <= _PORT_MAX else None


def _method(value: Any) -> str | None:
    """A method that OCSF has."""
    text = (_text(value) or "").upper()
    return text if text and text in _METHODS else None


_ECS: Final = (
    _Field("client.ip", ("client.address",), _address),
    _Field("server.ip", ("server.address",), _address),
    _Field("http.version", ("network.protocol.version",)),
    _Field("http.request.referrer", ("http.request.header.referer",)),
    _Field("http.request.body.bytes", ("http.request.body.size",), _int),
    _Field("http.response.body.bytes", ("http.response.body.size",), _int),
    _Field("http.response.status_code", ("http.response.status_code",), _int),
    _Field("error.type", ("exception.type",)),
    _Field("error.message", ("exception.message",)),
    _Field("error.stack_trace", ("exception.stacktrace",)),
    _Field("log.logger", ("component",)),
    _Field("process.thread.id", ("thread.id",), _int),
    _Field("user.id", ("enduser.id",)),
)


def _by_root() -> dict[str, tuple[tuple[_Field, ...], tuple[str, ...]]]:
    """By the first part of their names: fields whose values have a type, and names that have fields inside."""
    typed = [*(_Field(name, (name,), _int) for name in ECS_NUMBERS)]
    typed += [_Field(name, (name,), _address) for name in ECS_ADDRESSES]
    roots = dict.fromkeys(name.partition(".")[0] for name in (*(field.name for field in typed), *ECS_OBJECTS))
    return {
        root: (
            tuple(field for field in typed if field.name.partition(".")[0] == root),
            tuple(name for name in ECS_OBJECTS if name.partition(".")[0] == root),
        )
        for root in roots
    }


_ECS_BY_ROOT: Final = _by_root()
_OCSF_HTTP: Final = (
    _Field("http_request.http_method", ("http.request.method",), _method),
    _Field("http_request.user_agent", ("user_agent.original",), _short),
    _Field("http_request.referrer", ("http.request.header.referer",), _short),
    _Field("http_request.version", ("network.protocol.version",), _short),
    _Field("http_request.length", ("http.request.size", "http.request.body.size"), _int),
    _Field("http_response.code", ("http.response.status_code",), _int),
    _Field("http_response.length", ("http.response.size", "http.response.body.size"), _int),
    _Field("dst_endpoint.ip", ("server.address",), _short_address),
    _Field("dst_endpoint.hostname", ("server.address",), _hostname),
    _Field("dst_endpoint.port", ("server.port",), _port),
)
_OCSF_OBJECTS: Final = (
    (
        (
            _Field("http_request.url.path", ("url.path",), _short),
            _Field("http_request.url.url_string", ("url.full", "url.original"), _short),
        ),
        (
            _Field("http_request.url.query_string", ("url.query",), _short),
            _Field("http_request.url.hostname", ("url.domain",), _hostname),
            _Field("http_request.url.scheme", ("url.scheme",), _short),
        ),
    ),
    (
        (
            _Field("src_endpoint.ip", ("client.address",), _short_address),
            _Field("src_endpoint.hostname", ("client.address",), _hostname),
        ),
        (_Field("src_endpoint.port", ("client.port",), _port),),
    ),
)
"""Objects that must have one of some fields, and what else they may have then."""
_CIM: Final = (
    _Field("http_method", ("http.request.method",)),
    _Field("uri_path", ("url.path",)),
    _Field("uri_query", ("url.query",)),
    _Field("url", ("url.full", "url.original")),
    _Field("url_domain", ("url.domain",)),
    _Field("status", ("http.response.status_code",)),
    _Field("http_user_agent", ("user_agent.original",)),
    _Field("http_referrer", ("http.request.header.referer",)),
    _Field("bytes_in", ("http.request.size", "http.request.body.size"), _int),
    _Field("bytes_out", ("http.response.size", "http.response.body.size"), _int),
    _Field("src", ("client.address", "source.address")),
    _Field("src_port", ("client.port", "source.port"), _int),
    _Field("dest", ("server.address", "destination.address")),
    _Field("dest_port", ("server.port", "destination.port"), _int),
    _Field("user", ("user.name", "enduser.id")),
    _Field("process_id", ("process.pid",), _int),
)


def in_schema_batch(schema: Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The events of a batch with their fields in a schema; dead rows stay as they are."""
    with no_collections():
        columns = {name: _plain(batch.column(name)) for name in _COLUMNS}
        dead = batch.column("dead_reason").is_valid().to_pylist()
        target = batch.column(schema.into).to_pylist()
        for row, text in enumerate(batch.column("attributes").to_pylist()):
            if not dead[row]:
                event = {name: values[row] for name, values in columns.items()}
                target[row] = _encode(in_schema(schema, event, {} if text is None else _decode(text))).decode()
    index = batch.schema.get_field_index(schema.into)
    return batch.set_column(index, schema.into, pa.array(target, pa.string()))


def _plain(column: pa.Array) -> list[Any]:
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values


def in_schema(schema: Schema, event: Event, attributes: Tree) -> Tree:
    """The fields of one event; its attributes are used up."""
    if schema.name == "ecs":
        return _ecs(event, attributes)
    return _ocsf(schema, event, attributes) if schema.name == "ocsf" else _cim(schema, event, attributes)


def _found(fields: Sequence[_Field], attributes: Tree) -> dict[str, Any]:
    """The values of fields; the attributes that they were taken of are removed."""
    found = {}
    for field in fields:
        for name in field.attributes:
            value = find_attribute(attributes, name)
            converted = None if value is None else field.convert(value)
            if converted is not None:
                take(attributes, name)
                found[field.name] = converted
                break
    return found


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _beside(attributes: Tree, fields: Mapping[str, Any]) -> Tree:
    """Fields, and attributes that have none; one whose name a field has gets `_2` behind it."""
    for name in attributes.keys() & fields.keys():
        value = attributes.pop(name)
        attributes[free_name({**attributes, **fields}, name)] = value
    return {**attributes, **fields}


def _when(event: Event) -> int | None:
    """Microseconds since 1970."""
    when: int | None = event["time"] if event["time"] is not None else event["observed_time"]
    return when


def _rfc3339(micros: int | None) -> str | None:
    if micros is None:
        return None
    if _YEAR_1 <= micros < _YEAR_10_000:
        return f"{(_EPOCH + timedelta(microseconds=micros)).isoformat(timespec='microseconds')}Z"
    text: str = pa.scalar(micros, pa.int64()).cast(MICROSECONDS).cast(pa.string()).as_py()
    return text.replace(" ", "T")


# --- schemas ---------------------------------------------------------------------------------------------------------


def _ecs(event: Event, attributes: Tree) -> Tree:
    fields = {
        "@timestamp": _rfc3339(_when(event)),
        "ecs.version": "8.17.0",
        "message": event["body"],
        "log.level": event["severity_text"],
        "event.severity": event["severity_number"],
        "event.id": event["event_id"],
        "event.created": _rfc3339(event["observed_time"]),
        "event.dataset": event["source"],
        "service.name": event["service"],
        "host.name": event["host"],
        "trace.id": event["trace_id"],
        "span.id": event["span_id"],
    }
    found = _found(_ECS, attributes)
    for side in ("client", "server"):  # ECS has the address in both forms
        if f"{side}.ip" in found:
            found[f"{side}.address"] = found[f"{side}.ip"]
    for root in {name.partition(".")[0] for name in attributes}:
        typed, objects = _ECS_BY_ROOT.get(root, ((), ()))
        for field in typed:
            if find_attribute(attributes, field.name) is not None:
                found = {**_found((field,), attributes), **found}
                _set_apart(attributes, field.name)
        for name in objects:
            if not isinstance(find_attribute(attributes, name), dict):
                _set_apart(attributes, name)
    return _beside(attributes, {**found, **_without_nulls(fields)})


def _set_apart(attributes: Tree, name: str) -> None:
    """Gives a name with `_2` to an attribute that its own cannot hold."""
    while find_attribute(attributes, name) is not None:
        _, value = take(attributes, name)
        attributes[free_name({**attributes, name: None}, name)] = value


def _cim(schema: Schema, event: Event, attributes: Tree) -> Tree:
    found = _found(_CIM, attributes)
    sizes = [found[name] for name in ("bytes_in", "bytes_out") if name in found]
    status = _int(found.get("status"))
    micros = _when(event)
    fields = {
        "_time": None if micros is None else micros / 1_000_000,
        "message": event["body"],
        "severity": event["severity_text"],
        "app": event["service"],
        "dvc": event["host"],
        "dest": found.get("dest", event["host"]),
        "bytes": sum(sizes) if len(sizes) == 2 else None,  # Splunk asks that it is the sum of both
        "http_user_agent_length": _length(found.get("http_user_agent")),
        "url_length": _length(found.get("url")),
        "action": None if status is None else "success" if status < _CLIENT_ERROR else "failure",
        "vendor_product": " ".join(filter(None, (schema.vendor, schema.product or event["service"]))),
        "trace_id": event["trace_id"],
        "event_id": event["event_id"],
    }
    return _beside(attributes, {**found, **_without_nulls(fields)})


def _length(text: str | None) -> int | None:
    return None if text is None else len(text)


def _ocsf(schema: Schema, event: Event, attributes: Tree) -> Tree:
    method = _text(find_attribute(attributes, "http.request.method"))
    is_http = bool(method) and _int(find_attribute(attributes, "http.response.status_code")) is not None
    found = _ocsf_http(attributes) if is_http else {}
    method = (method or "").upper() if is_http else ""
    activity = 0 if not method else _METHODS.index(method) if method in _METHODS else _OTHER
    class_uid = _HTTP_ACTIVITY if is_http else 0
    severity = _ocsf_severity(event["severity_number"] or 0)
    micros = _when(event)
    document: Tree = {
        "activity_id": activity,
        "category_uid": class_uid // 1_000,
        "class_uid": class_uid,
        "type_uid": class_uid * 100 + activity,
        "class_name": "HTTP Activity" if is_http else "Base Event",
        "severity_id": severity,
        "severity": _SEVERITIES[severity],
        "time": 0 if micros is None else micros // 1_000,
        "metadata": _without_nulls(
            {
                "version": OCSF_VERSION,
                "product": {
                    "name": (schema.product or event["service"] or "unknown")[:_TEXT_MAX],
                    "vendor_name": schema.vendor[:_TEXT_MAX],
                },
                "uid": event["event_id"],
                "log_name": event["source"],
                "logged_time": None if event["observed_time"] is None else event["observed_time"] // 1_000,
                "correlation_uid": event["trace_id"],
            }
        ),
    }
    if event["body"] is not None:
        document["message"] = event["body"][:_TEXT_MAX]
        if len(event["body"]) > _TEXT_MAX:
            attributes[free_name(attributes, "body")] = event["body"]
    if activity == _OTHER:
        document["activity_name"] = method[:_TEXT_MAX]
    code = found.get("http_response.code")
    if code is not None:
        is_success = code < _CLIENT_ERROR
        document |= {"status_id": 1, "status": "Success"} if is_success else {"status_id": 2, "status": "Failure"}
        document["status_code"] = str(code)
    for path, value in found.items():
        _put(document, path, value)
    if is_http:
        name = event["host"] or event["service"] or "unknown"
        document.setdefault("dst_endpoint", {}).setdefault("name", name[:_TEXT_MAX])
        document.setdefault("http_request", {})
    elif event["host"] is not None:
        attributes[free_name(attributes, "host.name")] = event["host"]
    if attributes:
        document["unmapped"] = attributes
    return document


def _ocsf_http(attributes: Tree) -> dict[str, Any]:
    found = _found(_OCSF_HTTP, attributes)
    for one_of, others in _OCSF_OBJECTS:
        if there := _found(one_of, attributes):
            found |= there | _found(others, attributes)
    return found


def _ocsf_severity(number: int) -> int:
    """OpenTelemetry's numbers as `severity_id`: to INFO informational, WARN medium, ERROR high, FATAL fatal."""
    if number <= 0:
        return 0
    return 1 if number < 13 else 3 if number < 17 else 4 if number < 21 else 6


def _put(document: Tree, path: str, value: Any) -> None:
    *holders, last = path.split(".")
    for name in holders:
        document = document.setdefault(name, {})
    document[last] = value
