"""Conditions and samples that the kernels answer themselves: the same answers as Spark's, NULLs and all."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.execute.stages import execution_stages
from logboom.pipeline.plan.layout import Condition, Layer
from logboom.pipeline.plan.outcomes import FALSE, TRUE
from logboom.pipeline.plan.sampling import keep_condition, weight_expression
from logboom.pipeline.route.conditions import simple_condition
from logboom.pipeline.route.routing import needs_spark
from logboom.pipeline.route.sample_columns import sampler, true_rows
from logboom.pipeline.spark.catalyst import open_catalyst
from logboom.pipeline.sql.attributes import PlainAttributes
from logboom.pipeline.sql.regex import OnRe2
from logboom.pipeline.sql.tree import Tree
from logboom.pipeline.transforms.sample import SampleTransform

WORDS = ("error", "Error", "", "50%", "a b", "ä€\U0001f600", "x\ny", "it's", "_", "e")
NUMBERS = (-1, 0, 9, 13, 17, 2_147_483_647)
_TEXT_COLUMNS = ("service", "SERVICE", "body", "severity_text")
_LITERALS = tuple("'" + word + "'" for word in WORDS if "'" not in word)


def _predicates() -> st.SearchStrategy[str]:
    signs = st.sampled_from(("=", "==", "!=", "<>", "<", "<=", ">", ">="))
    texts, numbers = st.sampled_from(_LITERALS), st.sampled_from(("-1", "0", "13", "17", "999999999"))
    named, counted = st.sampled_from(_TEXT_COLUMNS), st.sampled_from(("severity_number", "`offset`".strip("`")))
    negation = st.sampled_from(("", "NOT "))
    patterns = st.sampled_from(("'%'", "'e%'", "'%r'", "'%r%'", "'error'", "''", "'%\n%'", "'50%%'"))
    expressions = st.sampled_from(
        ("'^e'", "'(?i)ERR|r$'", "''", r"r'^\w+$'", r"r'\s|\bx'", "'(a|e|r)*$'", "'.r.'", "'[^e]$'")
    )
    return st.one_of(
        st.builds("{} {} {}".format, named, signs, texts),
        st.builds("{} {} {}".format, counted, signs, numbers),
        st.builds("{} {}IN ({}, {})".format, named, negation, texts, texts),
        st.builds("{} {}IN ({})".format, counted, negation, numbers),
        st.builds("{} {}BETWEEN {} AND {}".format, counted, negation, numbers, numbers),
        st.builds("{} {}BETWEEN {} AND {}".format, named, negation, texts, texts),
        st.builds("{} {}LIKE {}".format, named, negation, patterns),
        st.builds("{} {}{} {}".format, named, negation, st.sampled_from(("RLIKE", "regexp")), expressions),
        st.builds("{} IS {}NULL".format, st.one_of(named, counted), negation),
        st.sampled_from(("true", "FALSE")),
    )


def _conditions() -> st.SearchStrategy[str]:
    return st.recursive(
        _predicates(),
        lambda inner: st.one_of(
            st.builds("{} AND {}".format, inner, inner),
            st.builds("{} or {}".format, inner, inner),
            st.builds("NOT {}".format, inner),
            st.builds("({})".format, inner),
        ),
        max_leaves=6,
    )


def _rows() -> list[dict[str, Any]]:
    dice = random.Random(3)
    rows = []
    for number in range(120):
        row: dict[str, Any] = {name: dice.choice((*WORDS, None)) for name in ("service", "body", "severity_text")}
        row |= {"severity_number": dice.choice((*NUMBERS, None)), "offset": dice.choice((-1, 0, 13, 2**40))}
        rows.append({**row, "event_id": f"web:0:{number}", "weight": dice.choice((1.0, 10.0))})
        rows[-1]["trace_id"] = dice.choice((None, f"{dice.getrandbits(128):032x}"))
    return rows


@pytest.mark.spark
def test_conditions_are_answered_as_spark_answers_them(spark: Any) -> None:
    rows = _rows()
    names = list(rows[0])
    events = pa.RecordBatch.from_pylist(rows, schema=pa.schema([EVENT_SCHEMA.field(name) for name in names]))
    kinds = {"severity_number": "int", "offset": "bigint", "weight": "double"}
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows], ", ".join(f"`{name}` {kinds.get(name, 'string')}" for name in names)
    ).coalesce(1)
    asked: list[str] = []

    @settings(max_examples=250, deadline=None, derandomize=True, database=None)
    @given(_conditions())
    def gather(sql: str) -> None:
        asked.append(sql)

    gather()
    unique = list(dict.fromkeys(asked))
    assert len(unique) > 100
    answers = {sql: simple_condition(sql) for sql in unique}
    # A literal with more digits than all ints have is Spark's; everything else drawn here is to be answered here.
    assert all(answer is not None for answer in answers.values()), [s for s, answer in answers.items() if not answer]
    for start in range(0, len(unique), 60):
        some = unique[start : start + 60]
        told = frame.selectExpr(*(f"({sql}) AS c{number}" for number, sql in enumerate(some))).collect()
        for number, sql in enumerate(some):
            answer = answers[sql]
            assert answer is not None
            assert answer(events).to_pylist() == [row[f"c{number}"] for row in told], sql


@pytest.mark.parametrize(
    "sql",
    [
        "service = 'a\\'b'",
        "service = 'a' 'b'",
        "service = 'it''s'",
        'service = "a"',
        "severity_number > 17L",
        "severity_number > 1.5",
        "severity_number > '17'",
        "service > 17",
        "severity_number = 3000000000",
        "time > '2026-01-01'",
        "weight > 1",
        "variant_get(attributes, '$.a', 'int') = 1",
        "lower(service) = 'a'",
        "service LIKE 'a_b'",
        "service RLIKE '\\\\d'",
        "service RLIKE '(?=a)'",
        "severity_number RLIKE '1'",
        "service <=> 'a'",
        "service IS TRUE",
        "service IN ()",
        "service IN ('a', NULL)",
        "service = NULL",
        "service = host",
        "severity_number = - -1",
        "severity_number -- 17",
        "service = 'a' /* b */",
        "true = false",
        "service",
        "",
        "nobody = 'a'",
        "service = 'a' AND",
        "service\x85= 'a'",
        "service = 'a'\x1c",
        "service\u2003= 'a'",
        "((((" * 40 + "true" + "))))" * 40,
    ],
)
def test_whatever_is_in_doubt_is_spark_s(sql: str) -> None:
    assert simple_condition(sql) is None


@pytest.mark.spark
@pytest.mark.parametrize(
    ("rate", "follows_weight", "exclude"), [(3, False, None), (2.5, True, None), (4, True, "severity_number >= 17")]
)
def test_samples_keep_what_spark_keeps(spark: Any, rate: float, follows_weight: bool, exclude: str | None) -> None:
    node = SampleTransform(name="s", line=1, inputs=("p",), rate=rate, follows_weight=follows_weight, exclude=exclude)
    rows = [{name: row[name] for name in ("trace_id", "event_id", "weight", "severity_number")} for row in _rows()]
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows], "trace_id string, event_id string, weight double, severity_number int"
    ).coalesce(1)
    told = frame.selectExpr(
        f"{keep_condition(node.sampling)} AS kept", f"{weight_expression(node.sampling)} AS grown"
    ).collect()
    events = pa.RecordBatch.from_pylist(rows, schema=pa.schema([EVENT_SCHEMA.field(name) for name in rows[0]]))
    weights = np.array([row["weight"] for row in rows])
    sample = sampler(node.sampling)
    assert sample is not None
    assert sample.stays(events, weights).tolist() == [row.kept is True for row in told]
    assert sample.grown(events, weights).tolist() == [row.grown for row in told]
    assert sampler(SampleTransform(name="s", line=1, inputs=("p",), rate=2, key="lower(host)").sampling) is None
    assert sampler(SampleTransform(name="s", line=1, inputs=("p",), rate=2, exclude="weight > 1").sampling) is None


ATTRIBUTES = (
    None,
    "{}",
    '{"path":"/health","n":5}',
    '{"url.path":"/a","url":{"path":"/b"},"n":"7"}',
    '{"url":{"path":"/health"},"n":1.50}',
    '{"url":{"path":null},"n":null,"ok":true}',
    '{"url.path":null,"url":{"path":"/a"},"n":-3,"ok":"true"}',
    '{"url":"path","n":"12 ms","ok":false}',
    '{"n":1e3,"ok":"yes"}',
    '{"n":100000000000000000000,"path":{"b":1,"a":[1,"x"]}}',
    '{"n":[5],"note":"\\"path\\":1","path":"it\'s \\"here\\""}',
    '{"a":{"url.path":"/deep","url":{"path":"/deeper"}},"n":"-.5e1"}',
    '{"n":2.0,"path":"5"}',
)
OF_ATTRIBUTES = (
    "attributes.path = '/health'",
    "attributes['path'] != '/health'",
    "attributes['url.path'] = '/a'",
    "attributes.url.path IN ('/a', '/health')",
    "Attributes.`url.path` LIKE '/h%'",
    "attributes['url']['path'] RLIKE '^/[ab]$'",
    "attributes.a['url.path'] = '/deep'",
    "attributes.n > 4",
    "attributes.n = 1.5",
    "attributes.n <= -3",
    "attributes.n NOT IN (5, 7)",
    "attributes.n BETWEEN 1 AND 7",
    "attributes.n = '5'",
    "attributes.n = '1.5' OR attributes.n = '2'",
    "attributes.n >= '1000'",
    "attributes.n IS NULL",
    "attributes.url IS NOT NULL",
    'attributes.path = \'{"a":[1,"x"],"b":1}\'',
    "attributes.path = 5",
    "attributes.ok = 'true' AND NOT attributes.nobody = 'x'",
)


def test_attributes_mean_the_same_to_both() -> None:
    events = pa.RecordBatch.from_pydict({"attributes": pa.array(ATTRIBUTES, pa.string())})
    with open_catalyst() as catalyst:
        tree = Tree(catalyst.classes)
        asked = [OnRe2(tree).rewrite(PlainAttributes(tree).parsed(f"CAST(({sql}) AS INT)")) for sql in OF_ATTRIBUTES]
        table = [("attributes", "try_parse_json(_text)")]
        told = catalyst.evaluate(table, [[text] for text in ATTRIBUTES], asked)
    for number, sql in enumerate(OF_ATTRIBUTES):
        answer = simple_condition(sql)
        assert answer is not None, sql
        found = [None if value is None else int(value) for value in answer(events).to_pylist()]
        assert found == [row[number] for row in told], sql


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("attributes.ok = true", [None] * 5 + [1, 1, 0, None, None, None, None, None]),
        (
            "attributes.n + 1 > 5 AND upper(attributes.path) = '/HEALTH'",
            [None, None, 1, None, 0, None, 0, None, None, 0, 0, 0, 0],
        ),
    ],
)
def test_attributes_in_other_sql_are_spark_s(sql: str, wanted: list[int | None]) -> None:
    assert simple_condition(sql) is None
    with open_catalyst() as catalyst:
        tree = Tree(catalyst.classes)
        asked = PlainAttributes(tree).parsed(f"CAST(({sql}) AS INT)")
        told = catalyst.evaluate([("attributes", "try_parse_json(_text)")], [[text] for text in ATTRIBUTES], [asked])
    assert [row[0] for row in told] == wanted


def test_null_is_neither_true_nor_false() -> None:
    assert true_rows(pa.array([True, None, False])).tolist() == [True, False, False]
    assert (TRUE, FALSE) == (1, 0)


def test_a_layout_is_cut_where_spark_has_to_be_asked() -> None:
    simple = Layer((), (Condition("is_0", "severity_number >= 17", (0,)),), ())
    other = Layer((), (Condition("is_0", "length(body) > 3", (0,)),), ())
    assert (needs_spark(simple), needs_spark(other)) == (False, True)
    first, second = execution_stages((simple, other, simple))
    assert (first.spark_layer, first.steps) == (None, (simple,))
    assert (second.spark_layer, second.steps) == (other, (simple,))
