"""No record stops a batch, whatever its values, in any SQL function that a file may use: asked of the real engine."""

import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.pipeline.sql_calls import calls
from tests.pipeline.support import needs_java

from logboom.pipeline.config import sqlcheck
from logboom.pipeline.config.sqlcheck import check_expressions
from logboom.pipeline.execute.flow import guarded_condition
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, WHEN_COLUMNS, Expression
from logboom.pipeline.plan.outcomes import FAILED, FALSE, TRUE
from logboom.pipeline.spark.catalyst import Catalyst, open_catalyst
from logboom.pipeline.sql.copies import copies_of
from logboom.pipeline.sql.expression import record_expression
from logboom.pipeline.sql.functions import ALLOWED, REFUSED
from logboom.pipeline.sql.tree import COLUMN, Tree

pytestmark = [pytest.mark.spark, needs_java]

JOB_SECONDS_MAX = 900
"""A job that takes longer hangs: each takes a second or two."""

LONG = 60_000
HOSTILE = (
    *("", " ", "a", "a" * LONG, "a" * 40 + "c", "ab" * LONG, "\0", "\u2028", "ß" * LONG, "\U0001f600" * LONG),
    *("(" * LONG, "[" * LONG, "{" * LONG, '{"a":' * 5_000, '"' * LONG, "'" * LONG, "\\" * LONG, "%" * LONG, "," * LONG),
    *("a b " * LONG, "&a=" * LONG, "http://" + "a" * LONG, "http://[", "a://b?" + "c=d&" * LONG, "<a>" * LONG),
    *("9" * LONG, "-" * LONG, "0" * LONG + "1", "1e999999999", "1e-999999999", "-1e308", "NaN", "Infinity", "0x1p3"),
    *("9223372036854775807", "-9223372036854775808", "2147483648", "99999999999999999999999999999999999999.9"),
    *("0000-00-00", "2026-13-45T99:99:99+99:99", "9999-12-31T23:59:59.999999999Z", "294247-01-10T04:00:54Z"),
    *("+99:99", "UTC" + "+" * LONG, "interval 1 hour", "true", "null", "[" * 90 + "]" * 90, "[" * 900 + "]" * 900),
    *('{"a":1e-999999999}', '{"a":' + "9" * LONG + "}", '{"a":"' + "a" * LONG + '"}', '{"' + "a" * LONG + '":1}'),
    *("[" + "1," * LONG + "1]", '{"a":{"b":[{"c":null}]}}', "%ff%zz%" * LONG, "=" * LONG, "SGVsbG8=" * LONG),
)
"""One of these stands in every text column of a record."""

ASKED = tuple(dict.fromkeys(sql for _, sql in calls()))
ASKED_AT_ONCE = 40
"""Expressions in one job of Spark."""

TIMES = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(2026, 2, 28, tzinfo=UTC),
)
NUMBERS = (0, -1, 2**31 - 1, -(2**31))


@pytest.fixture(scope="module")
def hostile(spark: Any) -> Any:
    """Records of hostile values, with the columns of events."""
    rows: list[tuple[Any, ...]] = [
        (text, text, text, number, number * 2**31, time, float(number) / 3)
        for index, text in enumerate(HOSTILE)
        for number, time in [(NUMBERS[index % len(NUMBERS)], TIMES[index % len(TIMES)])]
    ]
    rows += [(None, None, None, None, None, None, None), ("x", "x", '{"a":[{"b":1}]}', 1, 1, TIMES[2], float("nan"))]
    names = (
        "body string, service string, text string, severity_number int, offset bigint, time timestamp, weight double"
    )
    frame = spark.createDataFrame(rows, names).repartition(2)
    return frame.selectExpr("*", "time AS observed_time", "try_parse_json(text) AS attributes").cache()


def answers(spark: Any, rows: Any, conditions: dict[str, str]) -> dict[str, set[int]]:
    """The verdicts of conditions on all rows; a job that hangs is cancelled, and fails."""
    verdicts = [guarded_condition(spark, sql).alias(f"c{number}") for number, sql in enumerate(conditions.values())]
    context, group = spark.sparkContext, f"hostile {time.monotonic()}"
    context.setJobGroup(group, "hostile", interruptOnCancel=True)
    watch = threading.Timer(JOB_SECONDS_MAX, context.cancelJobGroup, [group])
    watch.start()
    try:
        found = rows.select(*verdicts).collect()
    finally:
        watch.cancel()
    return {name: {row[number] for row in found} for number, name in enumerate(conditions)}


def test_every_function_of_spark_is_either_allowed_or_refused(spark: Any) -> None:
    known = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    generators = {
        "range",
        "collations",
        "sql_keywords",
        "python_worker_logs",
        "variant_explode",
        "variant_explode_outer",
    }
    assert known - set(ALLOWED) - set(REFUSED) == set(), "decide about these in pipeline/sql/functions.py"
    assert (set(ALLOWED) | set(REFUSED)) - known <= generators
    assert not set(ALLOWED) & set(REFUSED)


def test_every_allowed_function_is_asked_here() -> None:
    assert set(ALLOWED) - {name for name, _ in calls()} == set()


def test_what_is_asked_here_is_what_check_lets_pass(verdicts: dict[str, str | None]) -> None:
    assert {sql: verdicts[sql] for _, sql in calls() if verdicts[sql] is not None} == {}


def test_what_is_evaluated_several_times_is_counted_so() -> None:
    """Spark's own expressions have each column as often as `copies` says of the function."""
    with open_catalyst() as catalyst:
        tree = Tree(catalyst.classes)
        uncounted = {sql for sql in ASKED if _evaluated(catalyst, sql) - _counted(tree, tree.parse(sql))}
    assert uncounted == set()


def _evaluated(catalyst: Catalyst, sql: str) -> Counter[str]:
    """How often each column is in an expression as Spark evaluates it."""
    plan = catalyst.project(record_expression(Tree(catalyst.classes), sql), EVENT_COLUMNS)
    plan = catalyst.module("org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions").apply(plan)
    (expression,) = catalyst.listed(plan.expressions())
    leaves = catalyst.listed(expression.collectLeaves())
    return Counter(str(one.name()) for one in leaves if one.nodeName() == "AttributeReference")


def _counted(tree: Tree, node: Any, times: int = 1) -> Counter[str]:
    """The same as `copies` has it."""
    if tree.kind(node) == COLUMN:
        return Counter({str(node.nameParts().head()): times})
    found: Counter[str] = Counter()
    for position, child in enumerate(tree.children(node)):
        found += _counted(tree, child, times * copies_of(tree, node, position))
    return found


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("first", range(0, len(ASKED), ASKED_AT_ONCE))
def test_no_value_stops_a_batch_in_any_allowed_function(spark: Any, hostile: Any, first: int) -> None:
    part = {sql: f"({sql})::string = 'x'" for sql in ASKED[first : first + ASKED_AT_ONCE]}
    for sql, found in answers(spark, hostile, part).items():
        assert found <= {TRUE, FALSE, FAILED}, sql


def test_an_error_is_one_rows_own_where_conditions_share_a_part(spark: Any) -> None:
    """What several conditions have in common is not evaluated before all of them, outside the guard around each."""
    rows = spark.createDataFrame([("1",), ("x",), ("333",)], "body string")
    shared = "element_at(array(1, 2), CAST(length(body) - 1 AS INT)) = 2"
    twice = rows.select(
        guarded_condition(spark, shared),
        guarded_condition(spark, f"NOT ({shared})"),
        guarded_condition(spark, f"{shared} OR NOT {shared}"),
    )
    assert sorted(map(tuple, twice.collect())) == sorted([(FAILED,) * 3, (FAILED,) * 3, (TRUE, FALSE, TRUE)])


REGEX_ANSWERS: dict[str, list[bool | None]] = {
    r"body RLIKE '^(a|b)*$'": [True, False, True, False, None],
    r"NOT body RLIKE '^(a|b)*$'": [False, True, False, True, None],
    r"body RLIKE r'\d+\s(?i:HTTP)'": [False, True, False, False, None],
    r"body RLIKE '\\d+'": [False, True, False, True, None],
    r"regexp_like(body, 'a.*?b$')": [True, False, False, False, None],
    r"regexp_extract(body, r'(\w+) (\d+)', 2) = '404'": [False, True, False, False, None],
    r"regexp_extract(body, r'(\w+) (\d+)') = 'GET'": [False, True, False, False, None],
    r"regexp_extract(body, r'(\w+) (\d+)', 0) = 'GET 404'": [False, True, False, False, None],
    r"regexp_extract(body, '(x)|(G)', 1) = ''": [True, True, True, False, None],
    r"regexp_extract(body, 'nothing(x)', 1) = ''": [True, True, True, True, None],
    r"regexp_substr(body, '[0-9]+') IS NULL": [True, False, True, False, True],
    r"regexp_replace(body, r'(\d)(\d)', '$2.$1') = 'GET 0.44 http'": [False, True, False, False, None],
    r"regexp_replace(body, '[aeiou]', '') = 'b'": [True, False, False, False, None],
    r"body LIKE '%404%ttp'": [False, True, False, False, None],
    r"body LIKE '_b'": [True, False, False, False, None],
    r"body LIKE 'a%b%'": [True, False, False, False, None],
    r"body ILIKE 'get%H_TP'": [False, True, False, False, None],
    r"body LIKE '%!%_%' ESCAPE '!'": [False, False, False, True, None],
    r"body LIKE ANY ('_b', '%4_4%')": [True, True, False, False, None],
    r"body NOT LIKE ALL ('_b', '%4_4%')": [False, False, True, True, None],
    r"size(split(body, ' ')) = 3": [False, True, False, False, False],
    r"severity_number RLIKE '^17?$'": [True] * 5,
    r"upper(body) RLIKE 'HTTP' AND variant_get(attributes, '$.a', 'string') REGEXP '^v'": [
        False,
        True,
        False,
        False,
        None,
    ],
    r"exists(split(body, ' '), w -> w RLIKE '^[0-9]{3}$')": [False, True, False, False, None],
}


def test_regular_expressions_answer_as_they_should_on_re2(spark: Any) -> None:
    rows = spark.createDataFrame([("ab",), ("GET 404 http",), ("",), ("5%x\n(c)",), (None,)], "body string")
    rows = rows.selectExpr("*", "17 AS severity_number", """parse_json('{"a": "v1"}') AS attributes""").coalesce(1)
    expected = {sql: [TRUE if answer else FALSE for answer in wanted] for sql, wanted in REGEX_ANSWERS.items()}
    found = rows.select(*(guarded_condition(spark, sql) for sql in REGEX_ANSWERS)).collect()
    assert {sql: [row[number] for row in found] for number, sql in enumerate(REGEX_ANSWERS)} == expected


REFUSALS = {
    "repeat(body, 9) = body": "repeat() cannot be used here: its result can have any size",
    "element_at(sequence(1, severity_number), 1) = 1": "sequence() cannot be used here",
    "lpad(body, 1001, 'x') = body": "lpad: 1001 is too large; the limit is 1000",
    "lpad(body, severity_number, 'x') = body": "lpad: all its arguments but one should be constants",
    "reflect('java.lang.System', 'exit', 1) = body": "reflect() cannot be used here: it calls code of the JVM",
    "java_method('a', body) = body": "java_method() cannot be used here: it calls code of the JVM",
    "xpath_string(body, 'a') = 'x'": "xpath_string() cannot be used here: XML",
    "from_json(body, 'a DEC(9, 1)').a > 1": "from_json takes hours to make a decimal of 1e-999999999",
    "CAST(body AS INTERVAL DAY) IS NULL": "texts cannot be converted to intervals here",
    "aggregate(split(body, ' '), '', (a, x) -> a || a || x) = ''": "aggregate() cannot be used here",
    "exists(split(body, ' '), x -> x = body)": "may only use its own parameters and constants",
    "exists(split(body, ' '), x -> exists(split(x, ''), y -> y = x))": "cannot contain another one",
    "body RLIKE service": "rlike: all its arguments but one should be constants",
    "body RLIKE '(?=a)'": "rlike: the pattern is not an RE2 expression: RE2 does not support look-around",
    "body RLIKE '(a'": "rlike: the pattern is not an RE2 expression: missing",
    r"body RLIKE r'(a)\1'": "rlike: the pattern is not an RE2 expression",
    "regexp_extract(body, '(a)(b)', 3) = 'x'": "regexp_extract: the pattern has 2 groups",
    "regexp_extract(body, 'a') = 'x'": "regexp_extract: the pattern has no group",
    "regexp_replace(body, 'a', '$1') = 'x'": "regexp_replace: the pattern has 0 groups",
    "split(body, '(a|b)*')[0] = 'x'": "split: can only split at a plain text or at one character class",
    "str_to_map(body)['a'] = 'x'": "str_to_map() cannot be used here",
    "body LIKE service": "like: all its arguments but one should be constants",
    "body LIKE r'a\\b%_'": "like: the pattern the escape character",
    "to_date(body, service) IS NULL": "to_date: all its arguments but one should be constants",
    "contains(body, service)": "contains: all its arguments but one should be constants",
    "replace(replace(body, 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaaa') = ''": "may create 100 times the size of a record",
    "levenshtein(body, service) > 3": "levenshtein() cannot be used here: its time is the product",
    "assert_true(body = 'x') IS NULL": "assert_true() cannot be used here",
    "body COLLATE UNICODE = 'x'": "collate() cannot be used here",
    "concat_ws(body, split(body, ' ')) = ''": "concat_ws: its first argument should be a constant",
    "to_date(body, 'EEE, dd') IS NULL": "Spark does not know the 'EEE, dd' pattern",
    "to_timestamp(body, 'yyyy-QQQQQQ') > time": "Spark does not know the 'yyyy-QQQQQQ' pattern of a time",
    "date_format(time, 'QQQQQQ') = 'x'": "Spark does not know the 'QQQQQ' pattern of a time",
    "to_date(body, 'B') > time": "Spark does not know the 'B' pattern of a time",
    "to_timestamp(body, 'e') > time": "Spark does not know the 'e' pattern of a time: it stands for weeks",
    "round(weight, 2000000000) = 1": "round: 2000000000 is too large",
}


OF_RAW_RECORDS = {
    "exists(headers, h -> h.key = 'a' AND h.value = X'00')": None,
    "line RLIKE '(a|b)*' AND key IS NULL": None,
    "space(offset) = ''": "space() cannot be used here",
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What `check` says of all expressions of this module, asked of one JVM; what earlier runs were told stays out."""
    conditions = [
        *(Expression(sql=sql, columns=EVENT_COLUMNS, line=1, where="x", wants="any") for _, sql in calls()),
        *(Expression(sql=sql, columns=EVENT_COLUMNS, line=1, where="x") for sql in REFUSALS),
        *(Expression(sql=sql, columns=WHEN_COLUMNS, line=1, where="x") for sql in OF_RAW_RECORDS),
    ]
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlcheck, "cache_dir", lambda: cache / "jars")
        found = check_expressions(conditions)
    return {one.sql: verdict for one, verdict in zip(conditions, found, strict=True)}


def test_what_a_record_could_stop_is_refused_by_name(verdicts: dict[str, str | None]) -> None:
    assert {sql: verdicts[sql] for sql, wanted in REFUSALS.items() if wanted not in (verdicts[sql] or "")} == {}


def test_conditions_of_raw_records_are_reviewed_as_well(verdicts: dict[str, str | None]) -> None:
    for sql, wanted in OF_RAW_RECORDS.items():
        assert wanted in (verdicts[sql] or "") if wanted else verdicts[sql] is None, sql
