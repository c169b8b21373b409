"""The transform `enrich`: tables of every kind, their versions, and what is counted."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.pipeline_core.batches import passed
from tests.support.mmdb import mmdb
from tests.support.waiting import WAIT_S

from logboom.base.settings import SettingsError
from logboom.pipeline.checkpoint.ledger import ledger_of
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.enrich import maxmind, sources
from logboom.pipeline.enrich.sources import Rows, TableError
from logboom.pipeline.enrich.store import ReadStream, TableStore, Versions
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.execute.examples import run_examples
from logboom.pipeline.execute.stages import MISSED, conform
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.tables import TableRef
from logboom.pipeline.registry import read_plan
from logboom.pipeline.transforms.enrich import EnrichTransform

HOSTS = '\ufeffip,team,rack,note\n192.0.2.1,shop,007,"a ""b"""\n192.0.2.2,search,,\n,nobody,1,\n192.0.2.1,cart,008,x\n'


def compiled(
    directory: Path, table: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, **keys: Any
) -> Plan:
    keys = {"on": "attributes.client.address", "fields": {"team": "service", "rack": "attributes.rack"}, **keys}
    document = {
        "name": "tests",
        "checkpoint": str(directory / "checkpoint"),
        "sources": {"s": {"type": "stream", "stream": "web"}},
        "transforms": {
            "parsed": {"type": "parse", "inputs": ["s"], "rules": [{"format": "json"}]},
            "named": {"type": "enrich", "inputs": ["parsed"], "table": table, **keys},
        },
        "sinks": {"out": {"type": "console", "inputs": ["named"]}},
    }
    return compile_pipeline(json.dumps(document), str(directory / "test.yaml"), environ=environ)


class Tables:
    """The tables of a plan as a router keeps them: read again by this clock, with what is told when that fails."""

    def __init__(self, directory: Path, plan: Plan, read_stream: ReadStream | None = None) -> None:
        self.now_s = 0.0
        self.said: list[str] = []
        self._refs = plan.table_refs()
        self.store = TableStore(directory / "tables", directory, self.said.append, read_stream, now=lambda: self.now_s)

    def current(self) -> Versions:
        return self.store.current(self._refs)


def table_files(directory: Path, plan: Plan) -> Mapping[str, bytes]:
    """The tables of a plan, which can all be read, as executors are told of them."""
    store = TableStore(directory / "tables", directory, pytest.fail)
    return store.paths(store.current(plan.table_refs()))


def enriched(directory: Path, plan: Plan, *events: Mapping[str, Any]) -> tuple[list[Any], list[int]]:
    """Events behind the transform, and which keys it missed."""
    node = plan.transforms[1]
    assert isinstance(node, EnrichTransform)
    keys = table_files(directory, plan)
    rows = [{**event, "attributes": json.dumps(event.get("attributes", {}), separators=(",", ":"))} for event in events]
    batch = node.run(conform(pa.RecordBatch.from_pylist(rows, schema=EVENT_SCHEMA), EVENT_SCHEMA), keys)
    found: list[Any] = batch.to_pylist()
    for row in found:
        row["attributes"] = json.loads(row["attributes"])
    return found, batch.column("missed_named").to_pylist()


def address(text: str, **more: Any) -> dict[str, Any]:
    return {"attributes": {"client.address": text, **more}}


def test_a_csv_table(tmp_path: Path) -> None:
    (tmp_path / "hosts.csv").write_text(HOSTS)
    plan = compiled(tmp_path, {"type": "csv", "path": "hosts.csv", "key": "ip"}, environ={})
    assert read_plan(plan.to_json()) == plan
    rows, missed = enriched(
        tmp_path,
        plan,
        address("192.0.2.1"),
        address("192.0.2.2", rack=5),
        {"service": "own", **address("192.0.2.1", rack="mine")},
        address("192.0.2.9"),
        {},
    )
    assert [row["service"] for row in rows] == ["cart", "search", "own", None, None]
    assert [row["attributes"].get("rack") for row in rows] == ["008", 5, "mine", None, None]
    assert missed == [0, 0, 0, 1, 0]


def test_a_parquet_table(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "team": ["a", None], "rack": [1.5, 2.0]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    plan = compiled(tmp_path, {"type": "parquet", "path": "t.parquet", "key": "id"})
    rows, missed = enriched(tmp_path, plan, address("1"), {"attributes": {"client": {"address": 2}}})
    assert [(row["service"], row["attributes"]["rack"]) for row in rows] == [("a", 1.5), (None, 2.0)]
    assert missed == [0, 0]


def test_a_table_that_memory_could_not_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"id": ["1", "2", "3"], "team": ["a", "b", "c"]}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("id,team\n" + "".join(f"{at},a\n" for at in range(3)))
    (tmp_path / "t.json").write_text('{"1": {}, "2": {}, "3": {}}')
    for kind in ("parquet", "csv", "json"):
        ref = TableRef(name="named", kind=kind, location=f"t.{kind}", key="id")
        assert len(sources.read_table(ref, tmp_path)) == 3
        with monkeypatch.context() as small:
            small.setattr(sources, "ROWS_MAX", 2)
            assert "it has 3 rows, and a table may have 2:" in str(sources.table_faults(ref, tmp_path))
        with monkeypatch.context() as small:
            small.setattr(sources, "FILE_MAX_BYTES", 10)
            assert kind == "parquet" or "0 MiB, and a table may have" in str(sources.table_faults(ref, tmp_path))


def test_a_file_of_maxmind(tmp_path: Path) -> None:
    place = {
        "country": {"iso_code": "NO", "names": {"en": "Norway"}},
        "location": {"latitude": 59.9, "longitude": 10.7},
    }
    (tmp_path / "city.mmdb").write_bytes(
        mmdb({"192.0.2.0/25": place, "198.51.100.7/32": {"autonomous_system_number": 64500}})
    )
    plan = compiled(tmp_path, {"type": "geoip", "path": "city.mmdb"}, environ={}, fields={})
    addresses = ("192.0.2.127", "192.0.2.128", "198.51.100.7", "::1", "no address", "")
    rows, missed = enriched(tmp_path, plan, *map(address, addresses))
    assert rows[0]["attributes"] == {
        "client.address": "192.0.2.127",
        "geo.country_iso_code": "NO",
        "geo.country_name": "Norway",
        "geo.latitude": 59.9,
        "geo.longitude": 10.7,
    }
    assert rows[2]["attributes"]["as.number"] == 64500
    assert missed == [0, 1, 0, 1, 1, 1]


class _Server(BaseHTTPRequestHandler):
    answer: bytes = b""
    status = 200
    whole: bytes | None = None
    """All that is sent, head included, where it is not made of the others."""

    def do_GET(self) -> None:
        if self.whole is not None:
            self.wfile.write(self.whole)
            return
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[_Server]]]:
    class Handler(_Server):
        pass

    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{found.server_port}/teams", Handler
        finally:
            found.shutdown()
            thread.join(WAIT_S)


def test_a_table_over_http_is_asked_again_and_stays_where_it_fails(
    tmp_path: Path, server: tuple[str, type[_Server]]
) -> None:
    url, handler = server
    plan = compiled(tmp_path, {"type": "json", "url": url, "key": "ip", "refresh": "10s"})
    tables = Tables(tmp_path, plan)
    handler.answer = b'{"broken'
    with pytest.raises(TableError, match=r"^the table of named cannot be read from http://127.0.0.1:\d+/teams: "):
        tables.current()
    handler.answer = json.dumps([{"ip": 7, "team": "a"}, {"team": "no key"}]).encode()
    first = tables.current()
    handler.answer = b'{"7": {"team": "b"}, "8": "text"}'
    assert tables.current() == first
    tables.now_s = 10.0
    second = tables.current()
    assert second != first
    assert tables.store.missing(first) == tables.store.missing(second) == []
    assert json.loads(Path(tables.store.paths(second)["table:named"].decode()).read_bytes())["8"] == {"value": "text"}
    tables.now_s, handler.status = 20.0, 500
    assert tables.current() == second
    restarted = Tables(tmp_path, plan)
    assert restarted.current() == second
    told = [f"the table of named cannot be read from {url}: Internal Server Error; it stays as it was"]
    assert tables.said == restarted.said == told


HEAD = b"HTTP/1.0 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "Remote end closed connection without response"),
        (b"no HTTP\r\n\r\n", "no HTTP"),
        (HEAD + b"X: " + b"a" * 70_000 + b"\r\n\r\n[]", "got more than 65536 bytes when reading header line"),
        (HEAD + b"X: a\r\n" * 200 + b"\r\n[]", "got more than 100 headers"),
        (HEAD.replace(b"1.0", b"1.1") + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n[]", "IncompleteRead"),
        (HEAD + b"Content-Length: 1000\r\n\r\n[", "Input data was truncated"),
        (HEAD + b"\r\n" + b'{"a":' * 100_000, "it is nested too deeply"),
        (HEAD + b"\r\n" + b'{"a": 1e400}', "Number out of range"),
        (HEAD.replace(b"200", b"302") + b"Location: file:///etc/passwd\r\n\r\n", "is not allowed"),
    ],
    ids=["nothing", "no HTTP", "a long header", "many headers", "chunks", "half", "deep", "a number", "elsewhere"],
)
def test_whatever_a_server_answers_the_table_stays_as_it_was(
    tmp_path: Path, server: tuple[str, type[_Server]], answer: bytes, told: str
) -> None:
    url, handler = server
    tables = Tables(tmp_path, compiled(tmp_path, {"type": "json", "url": url, "key": "ip"}))
    handler.answer = b'{"7": {"team": "b"}}'
    first = tables.current()
    tables.now_s, handler.whole = 60.0, answer
    assert tables.current() == first
    (said,) = tables.said
    assert told in said
    assert said.endswith("; it stays as it was")


def test_an_answer_that_never_ends_is_given_up(
    tmp_path: Path, server: tuple[str, type[_Server]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = server
    handler.answer = b"[" + b" " * 3_000_000
    tables = Tables(tmp_path, compiled(tmp_path, {"type": "json", "url": url, "key": "ip"}))
    monkeypatch.setattr(sources, "HTTP_ANSWER_S", 0.0)
    with pytest.raises(TableError, match="the answer takes more than 0 s"):
        tables.current()


def test_a_file_of_maxmind_that_is_half_written_is_not_taken(tmp_path: Path) -> None:
    file, data = tmp_path / "city.mmdb", mmdb({"192.0.2.0/25": {"country": {"iso_code": "NO"}}})
    file.write_bytes(data)
    tables = Tables(tmp_path, compiled(tmp_path, {"type": "geoip", "path": "city.mmdb"}, fields={}))
    first = tables.current()
    file.write_bytes(data[:-30])
    assert tables.current() == first
    (told,) = tables.said
    assert told.startswith("the table of named: city.mmdb cannot be read as a file of MaxMind: ")
    file.write_bytes(mmdb({"192.0.2.0/25": {"country": {"iso_code": "SE"}}}))
    assert tables.current() != first


@pytest.mark.parametrize("where", ["data", "tree"])
def test_a_file_of_maxmind_that_is_damaged_inside_is_not_taken(tmp_path: Path, where: str) -> None:
    file, data = tmp_path / "city.mmdb", mmdb({"192.0.2.0/25": {"country": {"iso_code": "NO"}}})
    file.write_bytes(data)
    tables = Tables(tmp_path, compiled(tmp_path, {"type": "geoip", "path": "city.mmdb"}, fields={}))
    first = tables.current()
    if where == "data":
        file.write_bytes(data.replace(b"iso_code", b"\xff" * 8))
    else:  # the last record of the tree, which names the only place
        at = data.index(bytes(16) + b"\xe1") - 8
        file.write_bytes(data[:at] + b"\x7f" + data[at + 1 :])
    assert tables.current() == first
    (told,) = tables.said
    assert told.startswith("the table of named: city.mmdb is damaged: 1 of ")
    with pytest.raises(SettingsError, match=r"city\.mmdb is damaged: 1 of "):
        compiled(tmp_path, {"type": "geoip", "path": "city.mmdb"}, environ={}, fields={})


def test_damage_that_a_lookup_finds_is_counted_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, broken = {"country": {"iso_code": "NO"}}, {"country": {"is0_code": "SE"}}
    data = mmdb({"192.0.2.0/25": whole, "198.51.100.0/24": broken})
    (tmp_path / "city.mmdb").write_bytes(data.replace(b"is0_code", b"\xff" * 8))
    plan = compiled(tmp_path, {"type": "geoip", "path": "city.mmdb"}, fields={})
    monkeypatch.setattr("logboom.pipeline.enrich.maxmind._LOOKED_AT_MAX", 1)  # the first place alone
    rows, missed = enriched(tmp_path, plan, address("192.0.2.1"), address("198.51.100.1"), address("::1"))
    assert rows[0]["attributes"]["geo.country_iso_code"] == "NO"
    assert missed == [0, 0, 1]
    assert [row["missed_named.damaged"] for row in rows] == [0, 1, 0]
    assert plan.miss_labels() == ("named", "named.damaged")


@pytest.mark.parametrize("bits", [24, 28, 32])
def test_records_of_a_tree_are_read_as_they_are_written(bits: int) -> None:
    nodes = [(0, 1), ((1 << bits) - 1, 5), (2, (1 << bits) - 2)]
    written = b""
    for left, right in nodes:
        if bits == 28:
            written += (left & 0xFFFFFF).to_bytes(3) + bytes([left >> 24 << 4 | right >> 24])
            written += (right & 0xFFFFFF).to_bytes(3)
        else:
            written += left.to_bytes(bits // 8) + right.to_bytes(bits // 8)
    found = maxmind._records(written, len(nodes), bits)
    assert found is not None
    assert sorted(found.tolist()) == sorted(side for node in nodes for side in node)
    assert maxmind._records(written[:-1], len(nodes), bits) is None


def test_a_file_that_changes_is_another_version_and_old_ones_are_kept_for_a_while(tmp_path: Path) -> None:
    tables = Tables(tmp_path, compiled(tmp_path, {"type": "csv", "path": "t.csv", "key": "ip"}))
    versions = []
    for number in range(12):
        (tmp_path / "t.csv").write_text(f"ip,team,rack\n{'1' * (number + 1)},a,b\n")
        versions.append(tables.current())
    assert len({version["table:named"] for version in versions}) == 12
    assert tables.store.missing(versions[-1]) == tables.store.missing(versions[-5]) == []
    assert tables.store.missing(versions[0]) == ["table:named"]
    (tmp_path / "t.csv").unlink()
    assert tables.current() == versions[-1] == tables.current()
    assert len(tables.said) == 1


def test_a_stream_is_read_by_whoever_knows_the_log(tmp_path: Path) -> None:
    plan = compiled(tmp_path, {"type": "stream", "stream": "teams"})
    with pytest.raises(TableError, match="is the stream teams, which is not read here"):
        Tables(tmp_path, plan).current()
    given: list[Rows] = [{"a": {"team": "x"}}, {"a": {"team": "x"}, "b": {"value": 1}}]
    tables = Tables(tmp_path, plan, lambda _, rows: given[len(rows)])
    first = tables.current()
    tables.now_s = 60.0
    assert tables.current() != first
    assert tables.said == []


def test_examples_and_the_ledger_count_what_was_missed(tmp_path: Path) -> None:
    (tmp_path / "hosts.csv").write_text(HOSTS)
    text = """
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  named:
    type: enrich
    inputs: [parsed]
    table: {type: csv, path: hosts.csv, key: ip}
    on: "coalesce(attributes.ip, host)"
    fields: {team: attributes.team}
sinks: {all: {type: console, inputs: [named]}}
tests:
  - name: teams
    input:
      - {source: web, value: '{"ip": "192.0.2.1"}'}
      - {source: web, value: '{"host": "none"}'}
      - {source: web, value: '{'}
    expect:
      - {at: all, count: 1, fields: {attributes.team: cart}}
      - {at: all, count: 2}
"""
    plan = compile_pipeline(text, str(tmp_path / "shop.yaml"))
    assert run_examples(plan, table_files(tmp_path, plan)) == []
    assert ledger_of(Layout(plan), {f"{MISSED}:named": 3}).missed == {"named": 3}


def test_a_task_counts_what_was_missed_behind_a_parse(tmp_path: Path) -> None:
    (tmp_path / "hosts.csv").write_text(HOSTS)
    (tmp_path / "city.mmdb").write_bytes(mmdb({"192.0.2.0/24": {"country": {"iso_code": "AT"}}}))
    text = """
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  named:
    type: enrich
    inputs: [parsed]
    table: {type: csv, path: hosts.csv, key: ip}
    on: attributes.ip
    fields: {team: attributes.team}
  placed: {type: enrich, inputs: [named], table: {type: geoip, path: city.mmdb}, on: attributes.ip}
  here: {type: filter, inputs: [placed], condition: "service IS NULL"}
sinks: {all: {type: console, inputs: [here]}}
"""
    plan = compile_pipeline(text, str(tmp_path / "shop.yaml"))
    lines = [{"ip": ip} for ip in ("192.0.2.1", "192.0.2.9", "198.51.100.1", "192.0.2.9")]
    _, counts = passed(plan, *lines, {"none": 1}, keys=table_files(tmp_path, plan))
    assert (counts[f"{MISSED}:named"], counts[f"{MISSED}:placed"], counts[f"{MISSED}:placed.damaged"]) == (3, 1, 0)


@pytest.mark.parametrize(
    ("table", "keys", "message"),
    [
        (
            {"type": "csv", "path": "none.csv", "key": "ip"},
            {},
            "cannot be read from none.csv: No such file or directory",
        ),
        (
            {"type": "csv", "path": "hosts.csv", "key": "ipp"},
            {},
            "it has no column 'ipp'; there are ip, team, rack, note",
        ),
        (
            {"type": "csv", "path": "hosts.csv", "key": "ip"},
            {"fields": {"taem": "service"}},
            "has no column 'taem' (did you mean 'team'?)",
        ),
        ({"type": "csv", "path": "hosts.csv"}, {}, "needs key"),
        ({"type": "csv", "url": "http://x", "key": "ip"}, {}, "cannot be used with type csv"),
        ({"type": "json", "path": "a", "url": "http://x"}, {}, "needs path or url, not both"),
        ({"type": "json", "url": "ftp://x"}, {}, "should begin with http"),
        ({"type": "stream", "stream": "a b"}, {}, "is not a valid name for a stream"),
        ({"type": "geoip", "path": "hosts.csv"}, {}, "cannot be read as a file of MaxMind"),
        ({"type": "csv", "path": "hosts.csv", "key": "ip"}, {"on": "lower(host)"}, "should be a text"),
        ({"type": "csv", "path": "hosts.csv", "key": "ip"}, {"on": "severity_number"}, "should be a text"),
        ({"type": "csv", "path": "hosts.csv", "key": "ip"}, {"fields": {"team": "time"}}, "unknown field 'time'"),
        ({"type": "csv", "path": "hosts.csv", "key": "ip"}, {"fields": {}}, "needs fields"),
    ],
)
def test_faults_of_a_file(tmp_path: Path, table: Mapping[str, Any], keys: Mapping[str, Any], message: str) -> None:
    (tmp_path / "hosts.csv").write_text(HOSTS)
    with pytest.raises(SettingsError) as caught:
        compiled(tmp_path, table, environ={}, **keys)
    assert message in str(caught.value)
