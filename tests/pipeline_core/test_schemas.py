"""Events in the fields of ECS, OCSF and Splunk's CIM: what the schemas require is there, and nothing is lost."""

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute.examples import run_examples
from logboom.pipeline.reshape.schemas import Schema, in_schema

FILE = """
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: nginx_access, defaults: {service: shop, host: h1}}]}
  shaped: {type: reshape, inputs: [parsed], schema: SCHEMA}
sinks:
  screen: {type: console, inputs: [shaped]}
tests:
  - name: an access line
    input:
      source: web
      value: '203.0.113.9 - ann [01/Jan/2026:00:00:01 +0000] "GET /cart?id=7 HTTP/1.1" 404 512 "http://a.b/" "curl/8"'
    expect: {at: shaped, count: 1, fields: FIELDS}
"""
OCSF = {
    "class_uid": 4002,
    "category_uid": 4,
    "activity_id": 3,
    "type_uid": 400203,
    "severity_id": 3,
    "time": 1767225601000,
    "status_id": 2,
    "metadata.version": "1.3.0",
    "metadata.product.name": "shop",
    "metadata.product.vendor_name": "Acme",
    "http_request.http_method": "GET",
    "http_request.url.path": "/cart",
    "http_request.url.query_string": "id=7",
    "http_request.user_agent": "curl/8",
    "http_request.referrer": "http://a.b/",
    "http_response.code": 404,
    "http_response.length": 512,
    "src_endpoint.ip": "203.0.113.9",
    "dst_endpoint.name": "h1",
    "unmapped": {"user.name": "ann"},
}
ECS = {
    "@timestamp": "2026-01-01T00:00:01.000000Z",
    "message": "GET /cart?id=7 HTTP/1.1",
    "service.name": "shop",
    "host.name": "h1",
    "client.ip": "203.0.113.9",
    "client.address": "203.0.113.9",
    "http.request.method": "GET",
    "http.request.referrer": "http://a.b/",
    "http.response.status_code": 404,
    "http.response.body.bytes": 512,
    "http.version": "1.1",
    "url.path": "/cart",
    "user.name": "ann",
}
CIM = {
    "_time": 1767225601.0,
    "http_method": "GET",
    "uri_path": "/cart",
    "uri_query": "id=7",
    "status": "404",
    "bytes_out": 512,
    "action": "failure",
    "http_user_agent_length": 6,
    "src": "203.0.113.9",
    "dest": "h1",
    "user": "ann",
    "http_user_agent": "curl/8",
    "http_referrer": "http://a.b/",
    "vendor_product": "Acme shop",
    "app": "shop",
}


@pytest.mark.parametrize(
    ("schema", "fields"),
    [("{name: ocsf, vendor: Acme}", OCSF), ("ecs", ECS), ("{name: cim, vendor: Acme, product: shop}", CIM)],
)
def test_an_access_line_in_each_schema(schema: str, fields: dict[str, Any]) -> None:
    wanted = json.dumps({f"attributes.{name}": value for name, value in fields.items()})
    plan = compile_pipeline(FILE.replace("SCHEMA", schema).replace("FIELDS", wanted), "shop.yaml")
    assert plan.warnings == ()
    assert run_examples(plan, {}) == []


def test_the_document_may_be_the_body() -> None:
    text = FILE.replace("SCHEMA", "{name: ocsf, into: body}").replace("fields: FIELDS", "condition: BODY")
    text = text.replace("BODY", "\"get_json_object(body, '$.class_uid') = '4002' AND attributes.url.path = '/cart'\"")
    plan = compile_pipeline(text, "shop.yaml")
    assert run_examples(plan, {}) == []


def test_faults_of_a_schema() -> None:
    for schema, message in (("otel", "ecs"), ("{name: ocsf, into: host}", "into"), ("{into: body}", "name")):
        with pytest.raises(SettingsError) as raised:
            compile_pipeline(FILE.replace("SCHEMA", schema).replace("FIELDS", "{}"), "shop.yaml")
        assert message in str(raised.value)


# --- every output against the published schemas ----------------------------------------------------------------------

TEXT, LONG, OBJECT = "string_t", "long_t", "object"
OCSF_TYPES: dict[str, tuple[type, str | None]] = {
    TEXT: (str, None),
    LONG: (int, None),
    OBJECT: (dict, None),
    "port_t": (int, None),
    "hostname_t": (
        str,
        r"(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9])\.)*([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9\-]*[A-Za-z0-9])",
    ),
    "ip_t": (str, r"[0-9A-Fa-f:.]+(%.+)?"),
}
STRING_MAX, IP_MAX, PORT_MAX = 65_535, 40, 65_535
OCSF_OBJECTS: dict[str, dict[str, tuple[str, bool]]] = {
    "base": {
        "activity_id": (LONG, True),
        "activity_name": (TEXT, False),
        "category_uid": (LONG, True),
        "class_name": (TEXT, False),
        "class_uid": (LONG, True),
        "message": (TEXT, False),
        "metadata": ("metadata", True),
        "severity": (TEXT, False),
        "severity_id": (LONG, True),
        "status": (TEXT, False),
        "status_code": (TEXT, False),
        "status_id": (LONG, False),
        "time": (LONG, True),
        "type_uid": (LONG, True),
        "unmapped": (OBJECT, False),
    },
    "http_activity": {
        "dst_endpoint": ("network_endpoint", True),
        "src_endpoint": ("network_endpoint", False),
        "http_request": ("http_request", True),
        "http_response": ("http_response", True),
    },
    "metadata": {
        "correlation_uid": (TEXT, False),
        "log_name": (TEXT, False),
        "logged_time": (LONG, False),
        "product": ("product", True),
        "uid": (TEXT, False),
        "version": (TEXT, True),
    },
    "product": {"name": (TEXT, True), "vendor_name": (TEXT, True)},
    "http_request": {
        "http_method": (TEXT, False),
        "length": (LONG, False),
        "referrer": (TEXT, False),
        "url": ("url", False),
        "user_agent": (TEXT, False),
        "version": (TEXT, False),
    },
    "http_response": {"code": (LONG, True), "length": (LONG, False)},
    "url": {
        "hostname": ("hostname_t", False),
        "path": (TEXT, False),
        "query_string": (TEXT, False),
        "scheme": (TEXT, False),
        "url_string": (TEXT, False),
    },
    "network_endpoint": {
        "hostname": ("hostname_t", False),
        "ip": ("ip_t", False),
        "name": (TEXT, False),
        "port": ("port_t", False),
    },
}
"""Of github.com/ocsf/ocsf-schema, tag 1.3.0 (dictionary.json, events, objects): type, and whether it is required."""
ONE_OF = {"url": ("url_string", "path"), "network_endpoint": ("ip", "name", "hostname")}
ENUMS: dict[str, dict[int, str]] = {
    "severity": {0: "Unknown", 1: "Informational", 2: "Low", 3: "Medium", 4: "High", 5: "Critical", 6: "Fatal"},
    "status": {0: "Unknown", 1: "Success", 2: "Failure", 99: "Other"},
}
ACTIVITIES = {
    0: ("Base Event", {0, 99}),
    4002: ("HTTP Activity", {*range(9), 99}),
}
METHODS = {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE"}


def ocsf_faults(document: dict[str, Any]) -> list[str]:
    """What OCSF 1.3.0 does not allow in a document."""
    kind = document["class_uid"]
    fields = OCSF_OBJECTS["base"] | (OCSF_OBJECTS["http_activity"] if kind == 4002 else {})
    faults = _object_faults("", fields, document)
    name, activities = ACTIVITIES[kind]
    if document["class_name"] != name or document["activity_id"] not in activities:
        faults.append(f"activity {document['activity_id']} of {document['class_name']}")
    if document["type_uid"] != kind * 100 + document["activity_id"] or document["category_uid"] != kind // 1000:
        faults.append("type_uid, category_uid")
    for field, captions in ENUMS.items():
        number = document.get(f"{field}_id")
        if number is not None and captions.get(number) != document.get(field):
            faults.append(f"{field}_id {number} is {document.get(field)}")
    method = document.get("http_request", {}).get("http_method")
    return faults + [f"method {method}"] * (method is not None and method not in METHODS)


def _object_faults(path: str, fields: dict[str, tuple[str, bool]], document: dict[str, Any]) -> list[str]:
    faults = [f"{path}{name} is missing" for name, (_, needed) in fields.items() if needed and name not in document]
    for name, value in document.items():
        if name not in fields:
            faults.append(f"{path}{name} is no field")
            continue
        kind = fields[name][0]
        if kind in OCSF_OBJECTS:
            faults += _object_faults(f"{path}{name}.", OCSF_OBJECTS[kind], value)
            if kind in ONE_OF and not value.keys() & set(ONE_OF[kind]):
                faults.append(f"{path}{name} has none of {ONE_OF[kind]}")
        elif not _fits(kind, value):
            faults.append(f"{path}{name} is no {kind}: {value!r:.100}")
    return faults


def _fits(kind: str, value: Any) -> bool:
    python, pattern = OCSF_TYPES[kind]
    if not isinstance(value, python) or isinstance(value, bool):
        return False
    if isinstance(value, str):
        most = IP_MAX if kind == "ip_t" else STRING_MAX
        return len(value) <= most and (pattern is None or re.fullmatch(pattern, value) is not None)
    if isinstance(value, int):
        return 0 <= value <= PORT_MAX if kind == "port_t" else abs(value) < 2**63
    return True


ECS_TYPES: dict[str, str] = {
    **dict.fromkeys(("@timestamp", "event.created"), "date"),
    **{f"{side}.{what}": kind for side in ("client", "server") for what, kind in (("ip", "ip"), ("port", "long"))},
    **dict.fromkeys(("client.address", "server.address", "http.version", "http.request.referrer"), "keyword"),
    **dict.fromkeys(("http.request.body.bytes", "http.response.body.bytes", "http.response.bytes"), "long"),
    **dict.fromkeys(("http.response.status_code", "event.severity", "process.pid", "process.thread.id"), "long"),
    **dict.fromkeys(("ecs.version", "log.level", "event.id", "event.dataset", "service.name"), "keyword"),
    **dict.fromkeys(("host.name", "trace.id", "span.id", "error.type", "error.stack_trace"), "keyword"),
    **dict.fromkeys(("message", "error.message", "log.logger", "user.id"), "keyword"),
}
"""Of generated/csv/fields.csv of github.com/elastic/ecs, v8.17.0; wildcard and match_only_text are as keyword."""
ECS_REQUIRED = ("ecs.version",)
"""`@timestamp` too, for an event that has a time at all."""


def ecs_faults(document: dict[str, Any]) -> list[str]:
    """What ECS 8.17 does not allow in a document, whose names have dots or objects."""
    flat = dict(_flat("", document))
    faults = [f"{name} is missing" for name in ECS_REQUIRED if name not in flat]
    for name, value in flat.items():
        kind = ECS_TYPES.get(name)
        if any(other.startswith(f"{name}.") for other in ECS_TYPES):
            faults.append(f"{name} is an object in ECS")
        elif kind is not None and not _is_of(kind, value):
            faults.append(f"{name} is no {kind}: {value!r}")
    return faults


def _flat(path: str, tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(f"{path}{name}.", value)
        elif value is not None:
            yield f"{path}{name}", value


def _is_of(kind: str, value: Any) -> bool:
    if kind == "long":
        return isinstance(value, int) and abs(value) < 2**63
    if kind == "ip":
        return isinstance(value, str) and bool(ipaddress.ip_address(value))
    if kind == "date":
        return re.fullmatch(r"-?\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d[.]\d{6}Z", value) is not None
    return isinstance(value, str | int | float | list)


def cim_faults(document: dict[str, Any]) -> list[str]:
    """What does not fit Splunk's data model Web, as splunk-cim-models of github.com/splunk/pytest-splunk-addon tests it
    (Web.json, commit 40e5118f)."""
    faults = []
    for name in ("bytes", "bytes_in", "bytes_out", "dest_port", "_time", "http_user_agent_length", "url_length"):
        if name in document and not isinstance(document[name], int | float):
            faults.append(f"{name} is not a number")
    if "bytes" in document and document["bytes"] != document["bytes_in"] + document["bytes_out"]:
        faults.append("bytes is not the sum")
    for name in ("http_user_agent", "url"):
        if f"{name}_length" in document and document[f"{name}_length"] != len(document[name]):
            faults.append(f"{name}_length")
    for name in ("app", "vendor_product", "status", "dest", "src", "http_method"):
        if name in document and not isinstance(document[name], str):
            faults.append(f"{name} is not text")
    if document.get("action") not in (None, "success", "failure"):
        faults.append("action")
    return faults


FAULTS = {"ocsf": ocsf_faults, "ecs": ecs_faults, "cim": cim_faults}

NAMES = st.sampled_from(
    [
        *("http.request.method", "http.response.status_code", "client.address", "server.address", "url.path", "x"),
        *("user.name", "client.port", "server.port", "url.query", "url.domain", "url.full", "user_agent.original"),
        *("http.request.body.size", "http.response.size", "http.response.body.size", "host.name", "body", "http"),
        *("http.request", "client", "error", "client.ip", "process.pid", "thread.id", "exception.type", "service"),
    ]
)
VALUES = st.one_of(
    st.none(),
    st.integers(0, 999),
    st.integers(-(2**70), 2**70),
    st.text("ab.- ", max_size=5),
    st.sampled_from(
        ["10.0.0.1", "fe80::1%" + "z" * 50, "GET", "patch", "443", "70000", "200", "x" * 70_000, 1.5, True]
    ),
)
TREES = st.dictionaries(
    NAMES, VALUES | st.dictionaries(st.sampled_from(["port", "request", "bytes", "b"]), VALUES, max_size=2), max_size=8
)
EVENTS = st.fixed_dictionaries(
    {
        "time": st.none() | st.integers(-(10**15), 10**15) | st.sampled_from([-(10**17), 10**18, 253402300799999999]),
        "observed_time": st.none() | st.integers(0, 10**15),
        "severity_number": st.none() | st.integers(0, 24),
        "body": st.none() | st.text(max_size=3) | st.just("y" * 70_000),
        **{name: st.none() | st.text(max_size=3) for name in ("severity_text", "service", "host", "trace_id")},
        "span_id": st.none(),
        "event_id": st.just("web:0:7"),
        "source": st.just("web"),
    }
)
NO_FIELDS = {
    **dict.fromkeys(("time", "observed_time", "severity_number", "body", "severity_text", "service", "host"), None),
    **dict.fromkeys(("trace_id", "span_id"), None),
    "event_id": "web:0:7",
    "source": "web",
}


def _leaves(value: Any) -> list[str]:
    """All values but null, as texts in upper case: a schema may want a number as a text, a text as a number, and the
    name of a method as the standard has it."""
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in _leaves(inner)]
    return [] if value is None else [str(value).upper()]


@settings(deadline=None)
@given(EVENTS, TREES, st.sampled_from(["ecs", "ocsf", "cim"]))
@example(NO_FIELDS, {"client.port": 1.5}, "ecs")
@example(NO_FIELDS, {"http.response.status_code": "200.5"}, "ecs")
@example(NO_FIELDS, {"http.response.status_code": True}, "ecs")
def test_each_event_is_what_its_schema_allows_and_keeps_its_values(event: Any, tree: Any, name: Any) -> None:
    values = _leaves(tree)
    found = in_schema(Schema(name, "attributes", None, "unknown"), event, tree)
    assert FAULTS[name](found) == []
    assert not Counter(values) - Counter(_leaves(found))


OCSF_EVENT = (
    *("time", "observed_time", "severity_number", "body", "service", "host", "trace_id", "event_id", "source"),
)


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"http.request.method": "PATCH", "http.response.status_code": 204}, 4002),
        ({"http.request.method": "GET"}, 0),
        ({"http.response.status_code": 204}, 0),
        ({"http.request.method": "GET", "http.response.status_code": "none"}, 0),
    ],
)
def test_http_activity_has_a_request_and_a_response(attributes: dict[str, Any], kind: int) -> None:
    event = {**dict.fromkeys(OCSF_EVENT), "event_id": "web:0:7", "source": "web"}
    found = in_schema(Schema("ocsf", "attributes", None, "unknown"), event, dict(attributes))
    assert (found["class_uid"], ocsf_faults(found)) == (kind, [])
    if kind == 0:
        assert found["unmapped"] == attributes
    else:
        assert (found["activity_id"], found["activity_name"]) == (99, "PATCH")
        assert found["unmapped"] == {"http.request.method": "PATCH"}


def test_ecs_sets_apart_what_its_fields_cannot_hold() -> None:
    event = dict.fromkeys((*OCSF_EVENT, "severity_text", "span_id"))
    tree = {"error": "boom", "client": {"port": "x", "ip": "10.0.0.1"}, "process.pid": "12", "http.request": "GET /"}
    found = in_schema(Schema("ecs", "attributes", None, "unknown"), event, tree)
    assert {name: value for name, value in found.items() if name != "ecs.version"} == {
        "error_2": "boom",
        "client": {},
        "client.port_2": "x",
        "client.ip": "10.0.0.1",
        "process.pid": 12,
        "http.request_2": "GET /",
    }
