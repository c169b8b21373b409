"""Events in the fields of ECS, OCSF and Splunk's CIM: what the schemas require is there, and nothing is lost."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute.examples import collect_here, run_examples
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
    "bytes": 512,
    "bytes_out": 512,
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
    assert run_examples(plan, {}, collect_here) == []


def test_the_document_may_be_the_body() -> None:
    text = FILE.replace("SCHEMA", "{name: ocsf, into: body}").replace("fields: FIELDS", "condition: BODY")
    text = text.replace("BODY", "\"get_json_object(body, '$.class_uid') = '4002' AND attributes.url.path = '/cart'\"")
    plan = compile_pipeline(text, "shop.yaml")
    assert run_examples(plan, {}, collect_here) == []


def test_faults_of_a_schema() -> None:
    for schema, message in (("otel", "ecs"), ("{name: ocsf, into: host}", "into"), ("{into: body}", "name")):
        with pytest.raises(SettingsError) as raised:
            compile_pipeline(FILE.replace("SCHEMA", schema).replace("FIELDS", "{}"), "shop.yaml")
        assert message in str(raised.value)


NAMES = st.sampled_from(
    [
        "http.request.method",
        "http.response.status_code",
        "client.address",
        "server.address",
        "url.path",
        "x",
        "user.name",
    ]
)
VALUES = st.one_of(st.none(), st.integers(0, 999), st.text("abc", min_size=1, max_size=5), st.just("10.0.0.1"))
TREES = st.dictionaries(NAMES, VALUES | st.dictionaries(st.sampled_from(["a", "b"]), VALUES, max_size=2), max_size=6)
EVENTS = st.fixed_dictionaries(
    {
        "time": st.none() | st.integers(-(10**15), 10**15),
        "observed_time": st.none() | st.integers(0, 10**15),
        "severity_number": st.none() | st.integers(0, 24),
        **{name: st.none() | st.text(max_size=3) for name in ("severity_text", "service", "host", "body", "trace_id")},
        "span_id": st.none(),
        "event_id": st.just("web:0:7"),
        "source": st.just("web"),
    }
)


def _leaves(value: Any) -> list[str]:
    """All values but null, as texts: a schema may want a number as a text, or a text as a number."""
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in _leaves(inner)]
    return [] if value is None else [str(value)]


@settings(deadline=None)
@given(EVENTS, TREES, st.sampled_from(["ecs", "ocsf", "cim"]))
def test_each_event_has_what_its_class_requires_and_keeps_its_values(event: Any, tree: Any, name: Any) -> None:
    values = _leaves(tree)
    found = in_schema(Schema(name, "attributes", None, "unknown"), event, tree)
    assert not Counter(values) - Counter(_leaves(found))
    if name != "ocsf":
        return
    required = ("activity_id", "category_uid", "class_uid", "severity_id", "time", "type_uid", "metadata")
    assert all(name in found for name in required)
    assert found["type_uid"] == found["class_uid"] * 100 + found["activity_id"]
    assert found["class_uid"] // 1000 == found["category_uid"]
    assert {"version", "product"} <= found["metadata"].keys()
    assert {"name", "vendor_name"} <= found["metadata"]["product"].keys()
    if found["class_uid"] == 4002:
        assert "http_request" in found or "http_response" in found
        assert found["dst_endpoint"]["name"]
