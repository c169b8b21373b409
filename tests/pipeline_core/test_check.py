"""What `check` accepts must run: streams, directories, keys and patterns that cannot work are told with their lines."""

import os
from pathlib import Path
from typing import Any

import pytest

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.paths import checkpoint_of
from logboom.pipeline.plan.stores import StoreRef
from logboom.pipeline.registry import read_plan
from logboom.pipeline.run.runner import check_work_dir
from logboom.pipeline.sinks.registry import sink_types
from logboom.pipeline.spark.settings import SessionOptions

HEAD = """\
name: shop
sources: {web: {type: stream, stream: web}}
transforms: {events: {type: parse, inputs: [web], rules: [{format: json}]}}
"""


def compiled(text: str, **options: Any) -> Plan:
    return compile_pipeline(text, options.pop("file", "p.yaml"), **options)


def problems(text: str, **options: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        compiled(text, **options)
    assert all(problem.line for problem in caught.value.problems), "a problem without a line"
    return str(caught.value).split("\n")


def with_sinks(*sinks: str) -> str:
    return (
        HEAD + "sinks:\n" + "".join(f"  s{number}: {{inputs: [events], {sink}}}\n" for number, sink in enumerate(sinks))
    )


def with_rule(rule: str) -> str:
    return HEAD.replace("{format: json}", rule) + "sinks: {screen: {type: console, inputs: [events]}}\n"


# --- streams ----------------------------------------------------------------------------------------------------


def test_a_sink_that_feeds_its_own_source_is_refused() -> None:
    (told,) = problems(with_sinks("type: stream, stream: web"))
    assert told == (
        "p.yaml:5: sinks.s0.stream: writes 'web', which feeds the source 'web' (line 2) and so this sink again: each "
        "event would circulate as a new record for ever; write to another stream"
    )


def test_the_same_stream_on_other_brokers_is_a_copy_and_no_loop() -> None:
    text = with_sinks("type: stream, stream: web, bootstrap: 'elsewhere:9092'")
    assert compiled(text).sinks
    assert "each event would circulate" in problems(text, bootstrap="elsewhere:9092")[0]
    own = text.replace("elsewhere:9092", "a:1,localhost:9092")
    assert "each event would circulate" in problems(own)[0]  # the log is on 127.0.0.1:9092 by default
    assert "each event would circulate" in problems(own.replace("name: shop", "name: shop\nbootstrap: 'a:1'"))[0]


TWO_SOURCES = """\
name: shop
sources:
  first: {type: stream, stream: a}
  second: {type: stream, stream: b}
transforms:
  one: {type: parse, inputs: [first], rules: [{format: json}]}
  two: {type: parse, inputs: [second], rules: [{format: json}]}
sinks:
  onward: {type: stream, inputs: [one], stream: b}
  back: {type: stream, inputs: [two], stream: LAST}
"""


def test_a_chain_of_two_sources_is_allowed_and_a_ring_is_not() -> None:
    assert compiled(TWO_SOURCES.replace("LAST", "c")).sinks
    told = problems(TWO_SOURCES.replace("LAST", "a"))
    assert [line.split(":")[:3] for line in told] == [
        ["p.yaml", "9", " sinks.onward.stream"],
        ["p.yaml", "10", " sinks.back.stream"],
    ]
    assert "through the sources second -> first" in told[0]


def test_two_sources_on_one_stream_are_refused() -> None:
    twice = TWO_SOURCES.replace("LAST", "c").replace("stream: a}", "streams: [x, b]}")
    assert "sources.second: reads the stream 'b', which the source 'first' (line 3) reads too" in problems(twice)[0]
    pattern = TWO_SOURCES.replace("LAST", "c").replace("stream: a}", "pattern: 'b|x.*'}")
    assert "reads the stream 'b'" in problems(pattern)[0]
    both = pattern.replace("stream: b}", "pattern: 'b|x.*'}", 1)
    assert "reads the same pattern" in problems(both)[0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pattern: '.*'", "pattern matches '_shop.events' too, an internal stream of this pipeline"),
        ("stream: _shop.events", "reads '_shop.events', an internal stream of this pipeline"),
        ("stream: shop.dead.events", "the dead letters of 'events', which come from this source"),
        ("pattern: 'shop[.].*'", "the dead letters of 'events', which come from this source"),
    ],
)
def test_what_the_router_writes_for_itself_is_no_source(source: str, message: str) -> None:
    text = with_sinks("type: parquet, path: ./archive").replace("stream: web}", f"{source}}}")
    assert any(message in line and line.startswith("p.yaml:2: sources.web") for line in problems(text))


@pytest.mark.parametrize(
    ("stream", "what"),
    [
        ("_shop.events", "an internal stream of this pipeline"),
        ("_shop.-ticks", "an internal stream of this pipeline"),
        ("__pipeline_dials", "an internal stream of this pipeline"),
        ("shop.dead.events", "the stream of dead letters of 'events'"),
        ("shop.dead.s0", "the stream of dead letters of 's0'"),
    ],
)
def test_a_sink_into_a_stream_of_the_router_is_refused(stream: str, what: str) -> None:
    (told,) = problems(with_sinks(f"type: stream, stream: {stream}"))
    assert told == f"p.yaml:5: sinks.s0.stream: '{stream}' is {what}; choose another name"


@pytest.mark.parametrize("pattern", ["([a", "*a", "(?P<x", "a{2,1}", "(?<x)"])
def test_a_source_pattern_that_is_none(pattern: str) -> None:
    text = with_sinks("type: console").replace("stream: web}", f"pattern: '{pattern}'}}")
    (told,) = problems(text)
    assert told.startswith(f"p.yaml:2: sources.web.pattern: '{pattern}' is not a valid regular expression: ")


@pytest.mark.parametrize(
    "bootstrap", ["not a host", "a", "a:", "a:0", "a:1,", "a:99999", ":9092", "http://a:1", "a b:1"]
)
def test_a_bootstrap_that_is_none_hides_nothing_else(bootstrap: str) -> None:
    text = with_sinks("type: stream, stream: web").replace("name: shop", f"name: shop\nbootstrap: '{bootstrap}'")
    first, second = problems(text)
    assert first.startswith("p.yaml:2: bootstrap: '")
    assert "is not a broker's address such as 127.0.0.1:9092" in first
    assert "each event would circulate" in second
    sink = with_sinks(f"type: stream, stream: out, bootstrap: '{bootstrap}'")
    assert problems(sink)[0].startswith("p.yaml:5: sinks.s0.bootstrap: '")


@pytest.mark.parametrize("bootstrap", ["a:1", "a-1.b_c:9092, 10.0.0.1:9092", "[::1]:9092", "[fe80::1%eth0]:1"])
def test_a_bootstrap_as_kafka_takes_it(bootstrap: str) -> None:
    assert compiled(HEAD + f"bootstrap: '{bootstrap}'\nsinks: {{k: {{type: console, inputs: [events]}}}}\n")


# --- directories and keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "how"),
    [
        ("./archive", "is the directory"),
        ("elsewhere/../archive/", "is the directory"),
        ("link", "is the directory"),
        ("link/inner", "is inside the directory"),
        ("archive/date=2026-01-01", "is inside the directory"),
        (".", "contains the directory"),
    ],
)
def test_two_archives_in_one_directory_are_refused(path: str, how: str, tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "link").symlink_to("archive")
    text = with_sinks("type: parquet, path: archive", f"type: parquet, path: '{path}'")
    told = problems(text, file=str(tmp_path / "p.yaml"))
    wanted = f"sinks.s1.path: {how} of the sink 's0' (line 5): {tmp_path / 'archive'}; give each its own"
    assert f"{tmp_path}/p.yaml:6: {wanted}" in told


def test_archives_side_by_side_are_fine(tmp_path: Path) -> None:
    text = with_sinks("type: parquet, path: archive", "type: parquet, path: archive-2")
    assert len(compiled(text, file=str(tmp_path / "p.yaml")).sinks) == 2


@pytest.mark.parametrize("path", ["checkpoints/shop", "checkpoints", "checkpoints/shop/archive"])
def test_an_archive_and_the_checkpoint_are_kept_apart(path: str) -> None:
    assert "of the checkpoint" in problems(with_sinks(f"type: parquet, path: {path}"))[0]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3a://bucket/archive", "is a URL (s3a:), and files are moved by rename here"),
        ("hdfs:/archive", "is a URL (hdfs:)"),
        ("hdfs://name:8020/archive", "write webhdfs://NAMENODE:9870/PATH"),
        ("file:///data/archive", "is a URL; write the plain path: /data/archive"),
        ("file:/data/archive", "is a URL; write the plain path: /data/archive"),
        ("~/archive", "begins with '~'"),
        ("", "is empty; write a path"),
    ],
)
def test_a_path_that_is_none(path: str, message: str) -> None:
    (told,) = problems(with_sinks(f"type: parquet, path: '{path}'"))
    assert told.startswith(f"p.yaml:5: sinks.s0.path: '{path}' ")
    assert message in told
    (told,) = problems(f"checkpoint: '{path}'\n" + with_sinks("type: console"))
    assert message in told


def test_a_path_in_a_circle_of_links_is_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (told,) = problems(with_sinks("type: parquet, path: loop/x"), file=str(tmp_path / "p.yaml"), environ={})
    assert "p.yaml:5: sinks.s0.path: " in told


def test_a_directory_that_cannot_be_written_is_told_only_where_it_would_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = with_sinks("type: parquet, path: file/archive", "type: parquet, path: new/one")
    file = str(tmp_path / "p.yaml")
    assert compiled(text, file=file).sinks
    (told,) = problems(text, file=file, environ={})
    assert told.endswith(
        f"sinks.s0.path: {tmp_path}/file/archive cannot be written: {tmp_path}/file is not a directory"
    )
    assert sorted(os.listdir(tmp_path)) == ["file"], "a check leaves nothing behind"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc here")
def test_a_directory_that_keeps_no_files_is_told() -> None:
    (told,) = problems(with_sinks("type: parquet, path: /proc/archive"), environ={})
    assert "/proc/archive cannot be written: /proc " in told


def with_key(key: str) -> str:
    mask = "masked: {type: mask, inputs: [events], rules: [{kind: email, action: hash}], " + key + "}}"
    return HEAD.replace("}]}}", "}]}, " + mask, 1) + "sinks: {screen: {type: console, inputs: [masked]}}\n"


def test_a_key_file_is_looked_for_beside_the_pipeline(tmp_path: Path) -> None:
    file = str(tmp_path / "p.yaml")
    (told,) = problems(with_key("key_file: secret"), file=file, environ={})
    assert told.endswith(
        "p.yaml:3: transforms.masked.key_file: the key cannot be read from secret: No such file or directory"
    )
    (tmp_path / "secret").write_text("short")
    (told,) = problems(with_key("key_file: secret"), file=file, environ={})
    assert "too short" in told
    (tmp_path / "secret").write_text("at least sixteen bytes")
    assert compiled(with_key("key_file: secret"), file=file, environ={}).warnings == ()


def test_an_absent_key_variable_is_a_warning(tmp_path: Path) -> None:
    file = str(tmp_path / "p.yaml")
    (warning,) = compiled(with_key("key_env: SHOP_KEY"), file=file, environ={}).warnings
    assert (warning.line, warning.where) == (3, "transforms.masked.key_env")
    assert warning.message == "the environment variable SHOP_KEY is not set here; 'run' needs it"
    assert compiled(with_key("key_env: SHOP_KEY"), file=file, environ={"SHOP_KEY": "x" * 16}).warnings == ()
    assert "too short" in problems(with_key("key_env: SHOP_KEY"), file=file, environ={"SHOP_KEY": "x"})[0]


# --- patterns of lines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("%{INT:n:integer}", "unknown type 'integer' of field 'n' (known here: string, int, float)"),
        ("([a", "is not an RE2 expression: missing ]: [a"),
        ("(?P<a>x) (?P<a>y)", "has the field 'a' twice"),
        ("%{WORD:a}(?: %{INT:b}| %{WORD:a})?", "has the field 'a' twice"),
        (r"\((?P<a>[()|]+)\|(?P<a>y)", "has the field 'a' twice"),
        (r"(?P<a>\Q)|(\E)(?P<a>y)", "has the field 'a' twice"),
    ],
)
def test_a_pattern_of_lines_that_cannot_do_what_it_says(pattern: str, message: str) -> None:
    (told,) = problems(with_rule(f"{{format: pattern, pattern: '{pattern}'}}"))
    assert told.startswith("p.yaml:3: transforms.events.rules[0].pattern: pattern ")
    assert message in told


@pytest.mark.parametrize(
    "pattern",
    ["(?P<ip>a)|(?P<ip>b)", "(?:%{IPV4:ip}|%{IPV6:ip}) %{WORD:x}", "(?P<a>x(?:(?P<b>y)|(?P<b>z)))", "(?i)%{INT:n:int}"],
)
def test_a_name_may_stand_in_several_alternatives(pattern: str) -> None:
    assert compiled(with_rule(f"{{format: pattern, pattern: '{pattern}'}}")).transforms


# --- words ------------------------------------------------------------------------------------------------------


def test_an_unknown_type_hides_no_other_typo() -> None:
    known = ", ".join(sink_types())
    told = problems(with_sinks("type: parqet, pth: a", "type: kafka, steam: a, inptus: x", "steam: a"))
    assert told == [
        "p.yaml:5: sinks.s0.type: unknown type 'parqet' (did you mean 'parquet'?)",
        "p.yaml:5: sinks.s0: key 'path' is missing",
        "p.yaml:5: sinks.s0.pth: unknown key 'pth' (did you mean 'path'?)",
        f"p.yaml:6: sinks.s1.type: unknown type 'kafka' (known here: {known})",
        "p.yaml:6: sinks.s1.steam: unknown key 'steam' (did you mean 'stream'?)",
        "p.yaml:6: sinks.s1.inptus: unknown key 'inptus' (did you mean 'inputs'?)",
        f"p.yaml:7: sinks.s2: key 'type' is missing (known here: {known})",
        "p.yaml:7: sinks.s2.steam: unknown key 'steam' (did you mean 'stream'?)",
    ]


def test_an_empty_list_is_told_in_plain_words() -> None:
    (told,) = problems(HEAD.replace("[{format: json}]", "[]") + "sinks: {k: {type: console, inputs: [events]}}\n")
    assert told == "p.yaml:3: transforms.events.rules: is empty; give it at least one"


URL = "s3://state/pipelines/shop"


def test_a_checkpoint_may_be_in_a_bucket_with_its_files_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    plan = compiled(f"checkpoint: {URL}/\n" + with_sinks("type: console"))
    assert plan.checkpoint_store == StoreRef(url=URL)
    assert checkpoint_of(plan).parent == Path("/var/cache/me/logboom/checkpoints")
    assert checkpoint_of(plan).name.startswith("shop-")
    other = compiled(f"checkpoint: {URL}-2\n" + with_sinks("type: console"))
    assert checkpoint_of(other) != checkpoint_of(plan)


def test_a_checkpoint_in_a_bucket_takes_a_server_and_a_working_directory(tmp_path: Path) -> None:
    text = f"checkpoint: {{path: '{URL}', endpoint: 'http://minio:9000', region: eu, work_dir: ./work}}\n"
    plan = compiled(text + with_sinks("type: console"), file=str(tmp_path / "p.yaml"))
    assert plan.checkpoint_store == StoreRef(url=URL, endpoint="http://minio:9000", region="eu")
    assert checkpoint_of(plan) == tmp_path / "work"
    assert read_plan(plan.to_json()) == plan
    moved = compiled(text.replace("./work", "./other") + with_sinks("type: console"), file=str(tmp_path / "p.yaml"))
    assert moved.content_hash() == plan.content_hash(), "it is no other pipeline"


@pytest.mark.parametrize(
    ("keys", "where", "message"),
    [
        ("path: 's3://bucket'", "path", "should be a bucket and a prefix"),
        ("path: 's3://me:key@bucket/x'", "path", "credentials come from the environment"),
        ("path: 'gs://bucket/x', region: eu", "region", "goes with a path that begins with s3://"),
        ("path: 's3://bucket/x', endpoint: minio", "endpoint", "is not http://HOST:PORT"),
        ("path: ./here, work_dir: ./there", "work_dir", "goes with a path in a bucket"),
        ("path: 's3://bucket/x', work_dir: '~/x'", "work_dir", "begins with '~'"),
        ("path: 'hdfs://name/x'", "path", "is a URL (hdfs:)"),
        ("path: 'hdfs://name/x'", "path", "write webhdfs://NAMENODE:9870/PATH"),
        ("path: 'webhdfs://name'", "path", "a directory that is the checkpoint's alone"),
        ("path: 'webhdfs://a..b:9870/x'", "path", "has 'a..b:9870', which is not HOST:PORT"),
        ("path: 'webhdfs://one:9870,two:x/x'", "path", "has 'two:x', which is not HOST:PORT"),
        ("path: 'webhdfs://me:key@one:9870/x'", "path", "has more than name nodes and a directory"),
        ("path: 'webhdfs://one:9870/x?user.name=a'", "path", "has more than name nodes and a directory"),
        ("path: 'webhdfs://one:9870/x/../y'", "path", "has an empty name, '.' or '..' in its prefix"),
        ("path: 'webhdfs://name/x', region: eu", "region", "goes with a path that begins with s3://"),
        ("work_dir: ./x", "work_dir", "goes with a path in a bucket"),
    ],
)
def test_a_checkpoint_that_is_none(keys: str, where: str, message: str) -> None:
    told = problems(f"checkpoint: {{{keys}}}\n" + with_sinks("type: console"))
    assert any(f"checkpoint.{where}" in one and message in one for one in told), told
    assert "key@" not in "".join(told)


def test_an_archive_and_the_checkpoint_are_kept_apart_in_a_bucket_too() -> None:
    (told,) = problems(f"checkpoint: {URL}\n" + with_sinks(f"type: parquet, path: '{URL}/archive'"))
    assert f"sinks.s0.path: uses the same location as the checkpoint: {URL}; keep the two apart" in told


def test_executors_elsewhere_need_a_working_directory_that_they_see() -> None:
    cluster, stateful = (
        SessionOptions(master="spark://there:7077"),
        "once: {type: dedupe, inputs: [events], window: 1d}",
    )
    head = f"checkpoint: {URL}\n" + HEAD.replace("transforms: {", "transforms: {" + stateful + ", ")
    sink = "sinks: {s: {type: console, inputs: [once]}}\n"
    plan = compiled(head + sink)
    check_work_dir(plan, SessionOptions())
    with pytest.raises(PipelineError, match=r"^once has files in the checkpoint .* set checkpoint.work_dir in p.yaml"):
        check_work_dir(plan, cluster)
    check_work_dir(compiled(f"checkpoint: {URL}\n" + with_sinks("type: console")), cluster)
    named = f"{{path: '{URL}', work_dir: /mnt/all}}"
    check_work_dir(compiled(head.replace(f"checkpoint: {URL}", f"checkpoint: {named}") + sink), cluster)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"batch: {{max_records: {10**30}}}", "p.yaml:4: batch.max_records: should be less than or equal to 10000000"),
        ("batch: {interval: true}", "p.yaml:4: batch.interval: should be a number, got true"),
        ("batch: {interval: 3000d}", "p.yaml:4: batch.interval: should be at most 1d"),
    ],
)
def test_a_batch_that_spark_could_not_count_or_time(text: str, message: str) -> None:
    (told,) = problems(HEAD + text + "\nsinks: {screen: {type: console, inputs: [events]}}\n")
    assert told.startswith(message)


@pytest.mark.parametrize(
    "sink", ["type: file, path: './LONG.log'", "type: parquet, path: ./LONG", "type: file, path: a/LONG"]
)
def test_a_name_that_no_file_can_have(sink: str) -> None:
    (told,) = problems(with_sinks(sink.replace("LONG", "\u00e9" * 200)))
    assert told.startswith("p.yaml:5: sinks.s0.path: ")
    assert told.endswith(" has a name of more than 255 bytes, which no file can have")


@pytest.mark.parametrize("bound", [".nan", ".inf", "-.inf"])
def test_a_bound_of_a_histogram_that_a_pinned_plan_could_not_hold(bound: str) -> None:
    metric = f"{{type: histogram, of: attributes.n, bounds: [1, {bound}]}}"
    text = HEAD.replace(
        "{format: json}]}}",
        "{format: json}]}, m: {type: aggregate, inputs: [events], window: 1m, metrics: {h: METRIC}}}",
    )
    (told,) = problems(text.replace("METRIC", metric) + "sinks: {screen: {type: console, inputs: [m]}}\n")
    assert told.startswith("p.yaml:3: transforms.m.metrics.h.bounds")


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("type: parquet, path: ./archive, partition_by: []", "sinks.s0.partition_by: "),
        ("type: file, path: /dev/null", "sinks.s0.path: /dev/null is a device, pipe or socket"),
        ("type: webhook, url: 'http://a:1', requests_per_second: 1.0e-300", "sinks.s0.requests_per_second: should be"),
        ("type: otlp, url: 'http://a:1', transport: grpc, headers: {x-bin: a}", "sinks.s0.headers: 'x-bin' is not a"),
        (
            "type: otlp, url: 'http://a:1', transport: grpc, headers: {Grpc-Timeout: a}",
            "sinks.s0.headers: 'Grpc-Timeout' is",
        ),
        (
            "type: bigquery, project: proj, dataset: d, table: t, key_env: K, headers: {a!: a}",
            "sinks.s0.headers: 'a!' is no",
        ),
        ("type: webhook, url: 'http://h/%zz'", "sinks.s0.url: 'http://h/%zz' has characters behind the server that"),
        ("type: webhook, url: 'http://h?x=%zz'", "sinks.s0.url: 'http://h?x=%zz' has characters behind the server"),
        ("type: webhook, url: 'http://h/{service}'", "sinks.s0.url: 'http://h/{service}' has characters behind the"),
        ('type: webhook, url: "http://h/\\u0001"', "sinks.s0.url: 'http://h/"),
        ("type: webhook, url: 'http://256.1.1.1/'", "sinks.s0.url: 'http://256.1.1.1/' has characters that no"),
        ("type: webhook, url: 'http://a:1', headers: {Accept-Encoding: br}", "sinks.s0.headers: 'Accept-Encoding' is"),
        ("type: loki, url: 'http://a:1', labels: {a: ''}", "sinks.s0.labels: are all empty, which counts as no label"),
        ("type: loki, url: 'http://a:1', labels: {a: b}, tenant: a|b", "sinks.s0.tenant: 'a|b' is not an id"),
        ("type: loki, url: 'http://a:1', labels: {a: LONG}", "sinks.s0.labels: 'a' has more than 2,048 bytes"),
        (
            "type: loki, url: 'http://a:1', labels: {? LONG : a}",
            "sinks.s0.labels: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
        ),
        (
            "type: postgresql, table: t, url: 'postgresql://u@h/d?sslmode=bad'",
            "sinks.s0.url: sslmode should be disable,",
        ),
        (
            "type: postgresql, table: t, url: 'postgresql://u@h/d?slmode=require'",
            "sinks.s0.url: slmode is not an option of",
        ),
        (
            "type: postgresql, table: t, url: 'postgresql://u@h/d?connect_timeout=x'",
            "sinks.s0.url: connect_timeout shoul",
        ),
        (
            "type: postgresql, table: t, url: 'postgresql://u@h/d?target_session_attrs=read-only'",
            "sinks.s0.url: target_session_attrs=read-only asks for a server that takes no rows",
        ),
        (
            "type: bigquery, project: proj, dataset: a-b, table: t, key_env: K",
            "sinks.s0.dataset: 'a-b' is not a valid name of a",
        ),
        (
            "type: bigquery, project: proj, dataset: d, table: a.b, key_env: K",
            "sinks.s0.table: 'a.b' is not a valid name of a ta",
        ),
        (
            "type: bigquery, project: proj, dataset: d, table: t, key_env: K, columns: {e: event_id, E: body}",
            "sinks.s0.columns: 'E' differs only in case from another column",
        ),
        ("type: google_cloud_logging, project: proj, key_env: K, log: a b", "sinks.s0.log: 'a b' is not an id"),
        ("type: google_cloud_logging, project: proj, key_env: K, resource: ''", "sinks.s0.resource: '' is not a type"),
        ("type: google_cloud_logging, project: proj, key_env: K, labels: {'': a}", "sinks.s0.labels: have one without"),
        ("type: iceberg, table: a.b, catalog: 'http://a:1', warehouse: ' '", "sinks.s0.warehouse: is empty"),
        (
            "type: iceberg, table: a.b, catalog: 'http://a:1', properties: {uri: x}",
            "sinks.s0.properties: uri is a key of",
        ),
        ("type: splunk_hec, url: 'http://a:1', token_env: K, index: Main", "sinks.s0.index: 'Main' is not a valid"),
        (
            "type: otlp, preset: dynatrace, region: a b, token_env: K",
            "sinks.s0.region: 'a b' is not a part of the name of",
        ),
        ("type: elasticsearch, url: 'http://a:1', index: a, pipeline: ' '", "sinks.s0.pipeline: is empty"),
        (
            "type: stream, stream: __consumer_offsets",
            "sinks.s0.stream: '__consumer_offsets' is internal to the brokers",
        ),
    ],
)
def test_a_sink_that_could_take_nothing_is_refused(sink: str, message: str) -> None:
    told, *_ = problems(with_sinks(sink.replace("LONG", "x" * 3_000)))
    assert told.startswith(f"p.yaml:5: {message}")
