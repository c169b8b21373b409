"""Files that are odd but plausible: what `check` accepts runs, and no record of it is gone; what it refuses is told."""

import gzip
import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.pipeline_core.batches import raw
from tests.support.mmdb import mmdb

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.enrich.store import TableStore
from logboom.pipeline.execute.local import LazyCatalyst, LocalFlow
from logboom.pipeline.plan.layout import Layout

LINES = (
    b'{"level": "error", "service": "a7", "ip": "192.0.2.1", "n": 7}',
    b'{"service": null, "ip": ["192.0.2.1"], "n": "7"}',
    b'{"ip": "::1"}',
    b"{}",
    b"no JSON",
)


def ended(directory: Path, transform: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of all lines behind a parse and one transform, where they ended; each line has exactly one."""
    document = {
        "name": "t",
        "checkpoint": str(directory / "checkpoint"),
        "sources": {"s": {"type": "stream", "stream": "web"}},
        "transforms": {
            "parsed": {"type": "parse", "inputs": ["s"], "rules": [{"format": "json"}]},
            "it": {"inputs": ["parsed"], **transform},
        },
        "sinks": {"out": {"type": "console", "inputs": ["it"]}},
    }
    plan = compile_pipeline(json.dumps(document, indent=1), str(directory / "t.yaml"), environ={})
    store = TableStore(directory / "tables", directory, pytest.fail)
    keys = store.paths(store.current(plan.table_refs()))
    with LazyCatalyst() as spark:
        flow = LocalFlow(Layout(plan), keys, spark)
        rows: list[dict[str, Any]] = flow.rows(raw(LINES)).to_pylist()
    assert sorted(row["offset"] - 100 for row in rows) == list(range(len(LINES)))
    return rows


@pytest.mark.parametrize(
    "condition",
    [
        " OR ".join(f"severity_number = {number}" for number in range(3_000)),
        " AND ".join(f"NOT service = 'b{number}'" for number in range(3_000)),
        "(" * 40 + " OR ".join(["severity_number > 1"] * 2_000) + ")" * 40,
        "attributes.n IN (" + ", ".join(map(str, range(9_000))) + ")",
    ],
    ids=["or", "and", "brackets", "in"],
)
def test_a_condition_of_thousands_of_parts_is_evaluated(tmp_path: Path, condition: str) -> None:
    """`ended` asserts one row for each line. Such a condition once passed the check and then failed the batch, because
    the generated calls of its parts were nested."""
    ended(tmp_path, {"type": "filter", "condition": condition})


def enrich(kind: str, **keys: Any) -> dict[str, Any]:
    table = {"type": kind, "path": f"table.{kind}", **({} if kind == "geoip" else {"key": "ip"})}
    return {
        "type": "enrich",
        "table": table,
        "on": "attributes.ip",
        "fields": {} if kind == "geoip" else {"team": "attributes.team"},
        **keys,
    }


def parquet(keys: Any, teams: Any, *more: tuple[str, Any]) -> bytes:
    columns = [("ip", keys), ("team", teams), *more]
    arrays = [values if isinstance(values, pa.Array) else pa.array(values) for _, values in columns]
    data = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_arrays(arrays, names=[name for name, _ in columns]), data)
    return data.getvalue()


IP = ["192.0.2.1", "192.0.2.2"]
PLACE = {"country": {"iso_code": "NO", "names": {"en": "Norway"}}}
MMDB = mmdb({"192.0.2.0/25": PLACE})
DATA_AT = MMDB.index(bytes(16)) + 16
ACCEPTED: dict[str, tuple[str, bytes, Any]] = {
    "the last of two rows": ("csv", b"ip,team\n192.0.2.1,a\n192.0.2.1,b\n", "b"),
    "a header alone": ("csv", b"ip,team\n", None),
    "a header without an end of line": ("csv", b"ip,team", None),
    "no row with a team": ("csv", b"ip,team\n192.0.2.1,\n", None),
    "blank lines": ("csv", b"\n\nip,team\n\n192.0.2.1,a\n", "a"),
    "ends of lines": ("csv", b'\xef\xbb\xbfip,team\r\n192.0.2.1,"a\r\nb"', "a\r\nb"),
    "a value of 3 MB": ("csv", b"ip,team\n192.0.2.1," + b"x" * 3_000_000, "x" * 3_000_000),
    "a column of the event": ("csv", b"ip,service,team\n192.0.2.1,x,a\n", "a"),
    "nested": ("parquet", parquet(IP, [{"a": [1, None]}, None]), {"a": [1, None]}),
    "a map of numbers": ("parquet", parquet(IP, pa.array([[(1, 2)], None], pa.map_(pa.int64(), pa.int8()))), [[1, 2]]),
    "no number": ("parquet", parquet(IP, [float("nan"), 1.0]), None),
    "a decimal": ("parquet", parquet(IP, [Decimal("1.50"), None]), "1.50"),
    "texts as bytes": ("parquet", parquet([b"192.0.2.1", b"x"], [b"a", None]), "a"),
    "bytes that are not texts": ("parquet", parquet(IP, [b"\xff\x00", None]), "/wA="),
    "texts by numbers": ("parquet", parquet([Decimal("7.0"), Decimal(8)], ["a", None]), None),
    "nothing but nulls": ("parquet", parquet(IP, pa.nulls(2)), None),
    "numbers of any size": ("json", b'[{"ip": "192.0.2.1", "team": 1180591620717411303424}]', 2**70),
    "no row": ("json", b"[]", None),
}


@pytest.mark.parametrize(("kind", "data", "wanted"), ACCEPTED.values(), ids=list(ACCEPTED))
def test_a_table_that_is_odd_is_used_as_far_as_it_goes(tmp_path: Path, kind: str, data: bytes, wanted: Any) -> None:
    (tmp_path / f"table.{kind}").write_bytes(data)
    first = min(ended(tmp_path, enrich(kind)), key=lambda row: int(row["offset"]))
    assert json.loads(first["attributes"]).get("team") == wanted
    assert "geo.country_iso_code" not in first["attributes"]


def test_a_decimal_is_looked_up_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "table.parquet").write_bytes(parquet([Decimal(7), Decimal(8)], ["a", None]))
    rows = ended(tmp_path, enrich("parquet", on="attributes.n"))
    teams = [json.loads(row["attributes"] or "{}").get("team") for row in sorted(rows, key=lambda row: row["offset"])]
    assert teams == ["a", "a", None, None, None]


TIME = pa.array([2**62, 2], pa.timestamp("us"))
UTF_8 = "that is not UTF-8; save it as UTF-8"
REFUSED: dict[str, tuple[str, bytes, list[str]]] = {
    "nothing": ("csv", b"", ["it has no line with the names of its columns"]),
    "blank lines alone": ("csv", b"\r\n\n", ["it has no line with the names of its columns"]),
    "Latin-1": ("csv", "ip,team\n192.0.2.1,caf\xe9\n".encode("latin-1"), [f"line 2 has a byte (0xe9) {UTF_8}"]),
    "UTF-16": ("csv", "ip,team\n".encode("utf-16"), ["it is UTF-16; save it as UTF-8"]),
    "gzip": ("csv", gzip.compress(b"ip,team\n"), [f"line 1 has a byte (0x8b) {UTF_8}"]),
    "two columns": ("csv", b"ip,team,team\n1,2,3\n", ["it has 2 columns 'team'"]),
    "two keys": ("csv", b"ip,ip,team\n1,2,3\n", ["it has 2 columns 'ip'"]),
    "a short row": ("csv", b"ip,team\n192.0.2.1\n", ["Expected 2 columns, got 1: 192.0.2.1"]),
    "another column": ("csv", b"ip,taem\n", ["table.csv has no column 'team' (did you mean 'taem'?)"]),
    "a time that is none": ("parquet", parquet(IP, TIME), ["date value out of range"]),
    "a date that is none": ("parquet", parquet(IP, pa.array([2**31 - 1, 2], pa.date32())), ["magnitude"]),
    "two Parquet columns": ("parquet", parquet(IP, IP, ("team", IP)), ["it has 2 columns 'team'"]),
    "half of Parquet": ("parquet", parquet(IP, IP)[:-20], ["Parquet magic bytes not found in footer"]),
    "deep JSON": ("json", b"[" * 100_000, ["it is nested too deeply"]),
    "no list": ("json", b"5", ["it should be an object of rows by key, or a list"]),
    "MaxMind cut off": ("geoip", MMDB[:-1], ["table.geoip cannot be read as a file of MaxMind: Error opening"]),
    "a damaged tree": (
        "geoip",
        b"\xff" * 40 + MMDB[40:],
        ["table.geoip is damaged: 1 of the 2 positions that its tree"],
    ),
    "damaged data": (
        "geoip",
        MMDB[:DATA_AT] + b"\xff" * 20 + MMDB[DATA_AT + 20 :],
        ["table.geoip is damaged: 1 of 1 positions cannot be decoded"],
    ),
    "no MaxMind": ("geoip", b"ip,team\n", ["table.geoip cannot be read as a file of MaxMind: Error opening"]),
}


@pytest.mark.parametrize(("kind", "data", "told"), REFUSED.values(), ids=list(REFUSED))
def test_a_table_that_cannot_be_read_is_told(tmp_path: Path, kind: str, data: bytes, told: list[str]) -> None:
    (tmp_path / f"table.{kind}").write_bytes(data)
    assert_told(lambda: ended(tmp_path, enrich(kind)), told)


PLACES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an address of CSV": (
        {"type": "csv", "path": "https://a/b.csv", "key": "ip"},
        ["give it as url in a table of type json"],
    ),
    "a bucket": ({"type": "csv", "path": "s3://a/b.csv", "key": "ip"}, ["and a table is read from a file: write its"]),
    "no path": ({"type": "csv", "path": "", "key": "ip"}, ["'' is empty; write a path"]),
    "home": ({"type": "csv", "path": "~/a.csv", "key": "ip"}, ["begins with '~'"]),
    "a directory": ({"type": "csv", "path": ".", "key": "ip"}, ["cannot be read from .: Is a directory"]),
    "a space": ({"type": "json", "url": "http://a b/c"}, ["'http://a b/c' has characters that no address"]),
    "a port": ({"type": "json", "url": "http://a:99999/"}, ["'http://a:99999/' is not an address"]),
    "a password": ({"type": "json", "url": "http://u:p@a/"}, ["has a credential in it"]),
    "no host": ({"type": "json", "url": "http://"}, ["'http://' is not an address"]),
    "no scheme": ({"type": "json", "url": "HTTP:a"}, ["'HTTP:a' should begin with http:// or https://"]),
}


@pytest.mark.parametrize(("table", "told"), PLACES.values(), ids=list(PLACES))
def test_a_place_where_no_table_can_be_is_told(tmp_path: Path, table: dict[str, Any], told: list[str]) -> None:
    assert_told(lambda: ended(tmp_path, enrich("csv", table=table)), told)


def test_every_column_that_a_table_lacks_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("ip,team\n")
    fields = {"rack": "attributes.a", "team": "attributes.b", "room": "attributes.c"}
    told = ["table.csv has no column 'rack' (known here: team)", "table.csv has no column 'room' (known here: team)"]
    assert_told(lambda: ended(tmp_path, enrich("csv", fields=fields)), told)


def assert_told(compiled: Callable[[], object], told: list[str]) -> None:
    """The file is refused with these problems, each at a line."""
    with pytest.raises(SettingsError) as caught:
        compiled()
    problems = sorted(caught.value.problems, key=lambda problem: problem.message)
    assert len(problems) == len(told), problems
    for problem, wanted in zip(problems, told, strict=True):
        assert wanted in problem.message
        assert problem.line is not None
