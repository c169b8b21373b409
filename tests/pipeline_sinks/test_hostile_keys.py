"""Keys of sinks that no server, no file system and no client of a protocol can do anything with: `check` says so."""

import pytest
from tests.pipeline_sinks.cases import CASES
from tests.pipeline_sinks.harness import sink_of
from tests.pipeline_sinks.test_products import told

ES = "type: elasticsearch, index: a, url: "
PG = "type: postgresql, table: t, url: "
S3 = "type: parquet, path: 's3://logs/x'"
ICEBERG = "type: iceberg, table: n.t, path: "
COMMON = {
    "batch: {max_bytes: 0}": "should be at least 1000B, got 0",
    "batch: {max_events: 0}": "should be greater than or equal to 1, got 0",
    "batch: {max_age: 0}": "should be at least 100ms, got 0",
    "concurrency: -2": "should be greater than or equal to 1, got -2",
    "requests_per_second: .nan": "should be",
    "timeout: 0s": "should be at least 100ms",
    "retry_for: -1s": "is not a duration",
    "attempts: 0": "should be greater than or equal to 1, got 0",
}
ADDRESS = "is not an address such as https://host:port/path"
CHARACTERS = "has characters that no address of a server has"
KEYS = {
    ES + "''": f"'' {ADDRESS}",
    ES + "'http://a b/'": CHARACTERS,
    ES + "'http://a..b/'": CHARACTERS,
    ES + "'http://*'": CHARACTERS,
    ES + "'http://-a/'": CHARACTERS,
    ES + r'"http://a\\b"': CHARACTERS,
    ES + r'"http://a/\nb"': CHARACTERS,
    ES + "'http://a:70000'": ADDRESS,
    ES + "'http://a', headers: {X-A: b, x-a: c}": "'x-a' stands there twice",
    ES + r""""http://a", headers: {a: "b\nc"}""": "has a value with characters that no header may have",
    ES + "'http://a', api_key_env: ''": "'' is not a valid name of an environment variable",
    ES + "'http://a', api_key_env: a=b": "'a=b' is not a valid name of an environment variable",
    "type: loki, url: 'http://a', labels: {a: b}, tenant: \"a\\nb\"": "is not an id of a tenant",
    "type: clickhouse, url: 'http://a', table: t, user: \"a\\nb\"": "has characters that no header may have",
    "type: clickhouse, url: 'http://a', table: t, settings: {a b: 1}": "'a b' is not a valid name of letters, "
    "digits and '_'",
    "type: sumo_logic, url_env: A, fields: {a=b: c}": "'a=b' may have no '='",
    "type: sumo_logic, url_env: A, fields: {a: 'b,c'}": "neither it nor its value a comma",
    "type: statsd, address: 'a:0'": "'a:0' is not an address of a server",
    "type: statsd, address: ':8125'": "':8125' is not an address of a server",
    "type: statsd, address: 'a b:8125'": "'a b:8125' is not an address of a server",
    "type: statsd, address: 'a:8125', packet_bytes: 65536": "should be at most 65507",
    PG + "'postgresql://u@h:0/d'": "'h:0' is not HOST:PORT",
    PG + "'postgresql://u@h:99999/d'": "'h:99999' is not HOST:PORT",
    PG + "'postgresql://u@a b/d'": "'a b' is not HOST:PORT",
    PG + "'postgresql://u@h:1,h:abc/d'": "'h:abc' is not HOST:PORT",
    "type: file, path: 'out/{date'": "has an unpaired brace",
    "type: file, path: '{service}/../../etc/x'": "has '..' after a part that events fill in",
    "type: file, path: out/": "is a directory; write the path of a file",
    "type: file, path: p.yaml": "is the file of this pipeline",
    "type: parquet, path: 's3://a b/x'": "has a bucket 'a b', which is not a valid name of one",
    "type: parquet, path: 's3://b:80/x'": "has a bucket 'b:80', which is not a valid name of one",
    "type: parquet, path: 's3://lo..gs/x'": "has a bucket 'lo..gs', which is not a valid name of one",
    "type: parquet, path: 's3://logs/x/../y'": "has an empty name, '.' or '..' in its prefix",
    'type: parquet, path: "s3://logs/x\\ny"': "has characters that no prefix should have",
    S3 + ", region: 'a b'": "'a b' is not a valid name of a region",
    S3 + ", endpoint: 'http://h:99999'": "'http://h:99999' is not http://HOST:PORT",
    ICEBERG + "''": "'' is empty; write a path",
    ICEBERG + "x, columns: {a: attributes.x, A: attributes.y}": "'a' differs only in case from 'A'",
    ICEBERG + "x, columns: {Time: attributes.x}": "'Time' differs only in case from 'time'",
}


@pytest.mark.parametrize(("keys", "message"), KEYS.items())
def test_keys_that_cannot_work_are_told_with_their_line(keys: str, message: str) -> None:
    found = told(keys)
    assert message in found
    assert "p.yaml:5: sinks.out" in found


@pytest.mark.parametrize(("key", "message"), COMMON.items())
def test_limits_that_cannot_work_are_told_of_every_sink_that_sends_requests(key: str, message: str) -> None:
    others = (PG + "'postgresql://u@h/d'", "type: statsd, address: 'a:8125'")
    for keys in (*(case.keys.format(url="http://a") for case in CASES), *others):
        plain = ", ".join(part for part in keys.split(", ") if part.split(":")[0] not in ("timeout", "retry_for"))
        if key.split(":")[0] not in plain:
            assert message in told(f"{plain}, {key}"), keys


@pytest.mark.parametrize(
    "url",
    ["postgresql://u@h/d", "postgres://h1:1,h2:2/d", "postgresql://u@[::1]:5432/d", "postgresql://u@%2Fvar%2Frun/d"],
)
def test_addresses_as_libpq_takes_them(url: str) -> None:
    assert sink_of(f"{PG}'{url}'").url == url
