"""SQL is checked by Spark's own analyser, in a bare JVM."""

import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import py4j.java_gateway
import pytest
from pyspark.errors.exceptions.captured import install_exception_handler
from tests.pipeline.support import needs_java

from logboom.pipeline.config import sqlcheck
from logboom.pipeline.config.sqlcheck import SqlCheck, check_expressions, is_plain
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, WHEN_COLUMNS, Expression
from logboom.pipeline.route.conditions import simple_condition
from logboom.pipeline.spark.catalyst import open_catalyst
from logboom.pipeline.sql.literals import is_boolean, is_number
from logboom.pipeline.sql.tree import Tree

pytestmark = [pytest.mark.spark, needs_java]

FAULTS = {
    "severity_number >= 17": None,
    "attributes:status::int > 3 AND body LIKE 'a(b)%'": None,
    "variant_get(attributes, '$.status', 'int') > 500": None,
    "severty_number = 1": "unknown column 'severty_number' (did you mean 'severity_number'?)",
    "uper(service) = 'x'": "unknown function 'uper' (did you mean 'upper'?)",
    "service": "must be true or false, but is of type string",
    "rand() > 0.5": "random values differ when a batch is replayed",
    "time > now()": "the current time differs when a batch is replayed",
    "count(1) > 3": "aggregates, window functions and generators",
    "sum(weight) OVER () > 1": "aggregates, window functions and generators",
    "(SELECT 1) = 1": "subqueries cannot be used here",
    "service = = 'x'": "Syntax error at or near '=' (line 1 of the expression, character 11)",
    "service = 'x' AND\n  upper(body) >> ) 3": "(line 2 of the expression, character 18)",
    "upper(body) = 'X' -- why": None,
    "body\x85= 'x'": "Syntax error",
    "upper(body) = 'X' -- why\\": "ends in an open comment: remove the backslash",
    "body like": "ends too early",
    "severity_number > 3 really": "Spark reads 'really' as an alias",
    "service = array(1)": "incompatible types",
    # Spark's dialect is the one that runs: there a cast that fails is null, and a comparison with null never true.
    "severity_number = 'abc'": "'abc' is not a whole number, so no comparison with it is ever true",
    "severity_number <> 'it\\'s' OR body = 'x'": "'it's' is not a whole number",
    "severity_number IN ('17', 'x\\'y')": "'x'y' is not a whole number",
    "weight > 'much'": "'much' is not a number",
    "time BETWEEN '2026-01-01' AND 'soon'": "'soon' is not a time",
    "severity_number = '17' AND time > '2026-01-01' AND service IN ('a', 'b')": None,
    "attributes.path = '/'": None,
    "attributes['url.path'] = lower(service)": None,
    "length(attributes.path) > 3 AND attributes.n + 1 > 2": None,
    "attributes:path = '/'": "a value of attributes has no type of its own; write attributes.path",
    "NOT attributes.slow": '"attributes.slow" has the type "STRING"; an attribute is a text: compare it, or write CAST',
    "~ attributes['a b'] < 0": "write CAST(attributes['a b'] AS ...)",
    "reflect('java.lang.System', 'getenv', 'HOME') = 'x'": "reflect() cannot be used here",
    "`java_method`/**/('java.lang.Math', 'random') = 'x'": "java_method() cannot be used here",
    "monotonically_increasing_id() = 1": "its value differs when a batch is replayed",
    "from_utc_timestamp(time, 'Nowhere/X') > time": "'Nowhere/X' is not a time zone, so it fails for every record",
    "to_utc_timestamp(time, 'Berlin') > time": "to_utc_timestamp: 'Berlin' is not a time zone",
    "hour(convert_timezone('Europe/Berlin', 'Mars', time)) = 1": "convert_timezone: 'Mars' is not a time zone",
    "hour(convert_timezone('Europe/Berlin', 'UTC', time)) = 1 AND from_utc_timestamp(time, '+02:00') > time": None,
    "from_utc_timestamp(time, 'PST') > time AND to_utc_timestamp(time, 'UTC+1') < time": None,
    "struct(*).body = 'x'": "name the columns; '*' stands for none here",
    # Spark computes what has no columns while it plans, and a failure there would end the run.
    "CAST(array('a') AS VARIANT)::int = severity_number": "a part of it without columns fails for every event: The",
    "parse_json('{') IS NULL AND body = 'x'": "a part of it without columns fails for every event: Malformed",
    "element_at(array(1), 0) = severity_number": "fails for every event: The index 0 is invalid",
    "to_number('x', '999') > severity_number": "fails for every event: The format is invalid",
    "date_add(DATE'9999-12-31', 2147483647) > time": "fails for every event: long overflow",
    "map('a', 1, 'a', 2)['a'] = severity_number": "fails for every event: Duplicate map key a was found",
    "bit_get(5, 99) = severity_number": "a part of it without columns fails",
    "CASE WHEN body = 'x' THEN parse_json('{')::int ELSE 1 END = 1 AND CAST('1' AS INT) = severity_number": None,
    "1/0 = severity_number": "divides by 0, which is null for every record",
    "severity_number % -0.0 = 1 OR attributes.n DIV 0 = 2": "divides by 0",
    "pmod(severity_number, 0D) = 1": "divides by 0",
    "severity_number / 10 > 1 AND attributes.n % 0.5 = 0 AND weight / attributes.n > 3": None,
    "(" * 100 + "weight > 1" + ")" * 100: None,
    "(" * 3_000 + "severity_number = 1" + ")" * 3_000: "has 3,000 brackets inside each other; at most 100 are allowed",
    "array(" * 101 + "1" + ")" * 101 + " IS NULL": "has 101 brackets inside each other",
    " OR ".join(f"service || 'x' = 'a{number}'" for number in range(3_000)): "has 20,999 words and signs",
    "NOT " * 9_000 + "weight > 1": "is nested too deeply for Spark to read",
    " + ".join(["weight"] * 4_000) + " > 1": "is nested ",
    "CASE WHEN weight > 1 THEN " * 400 + "true" + " END" * 400: "is nested too deeply for Spark to read",
    "nullif(" * 11
    + "service"
    + ", 'x')" * 11
    + " = 'a'": "evaluates one of its parts 2,048 times, and 100 times is the limit",
    "regexp_extract(" * 8 + "body" + ", '(a)')" * 8 + " = 'a'": "evaluates one of its parts 6,561 times",
    "right(" * 7 + "body" + ", 5)" * 7 + " = 'a'": "evaluates one of its parts 128 times",
    "body LIKE ANY ("
    + ", ".join(f"'%{number}_'" for number in range(101))
    + ")": "evaluates one of its parts 101 times",
    " OR ".join(
        ["nullif(" * 6 + "service" + ", 'x')" * 6 + " = 'a'"] * 20
    ): "parts as it is evaluated, of 319 that are",
    "CASE " * 12
    + "body"
    + " WHEN 'a' THEN 'b' WHEN 'c' THEN 'd' END" * 12
    + " = 'a'": "has more than 2,000 additional parts",
    "nullif(" * 6 + "service" + ", 'x')" * 6 + " = right(regexp_extract(body, '(a)'), 5)": None,
    "nullif(" * 4 + "service" + ", 'x')" * 4 + " = 'a' AND (weight BETWEEN 1 AND 2) BETWEEN false AND true": None,
    "weight > 1 AND body LIKE '" + "(" * 3_000 + "'": None,
    # What ANSI has no meaning for cannot be asked again under it, where it is null.
    "severity_number = true": '("INT" and "BOOLEAN"); compare values of one type',
    "CAST(time AS BOOLEAN)": 'cannot cast "TIMESTAMP" to "BOOLEAN"; write a comparison instead',
    "attributes.n > 1 AND CAST(CAST(time AS DATE) AS INT) > 1": 'cannot cast "DATE" to "INT"; write a comparison',
    "explode(array(1)) = 1": "aggregates, window functions and generators",
}


OTHERS = {
    "any type": Expression(sql="trace_id", columns=EVENT_COLUMNS, line=1, where="x", wants="any"),
    "a pattern with a name": Expression(sql=r"(?P<name>a)", columns=(), line=1, where="x", wants="pattern"),
    "a pattern with a comment": Expression(sql="(?x)shop.* # ours", columns=(), line=1, where="x", wants="pattern"),
    "a pattern with a line of comment": Expression(
        sql="(?x)shop.* # o\n", columns=(), line=1, where="x", wants="pattern"
    ),
    "a pattern with flags": Expression(sql="(?s)(?i)shop|a", columns=(), line=1, where="x", wants="pattern"),
    "a pattern that ends too early": Expression(sql="a)|(?:b", columns=(), line=1, where="x", wants="pattern"),
    "a pattern with an open quote": Expression(sql=r"(?x)a # \Qb", columns=(), line=1, where="x", wants="pattern"),
    "a pattern": Expression(sql=r"(?!_)shop.*", columns=(), line=1, where="x", wants="pattern"),
    # `body` is a column of events; a rule's `when` sees the raw record.
    "another table": Expression(sql="Body = 'x'", columns=WHEN_COLUMNS, line=1, where="x"),
}


def _conditions(*sql: str, line: int = 1) -> list[Expression]:
    return [Expression(sql=one, columns=EVENT_COLUMNS, line=line, where="x") for one in sql]


@pytest.fixture(scope="module")
def asked_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str | None]]:
    """The directory of the cache, and the verdicts on all that this module asks, from one JVM."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlcheck, "cache_dir", lambda: cache / "jars")
        found = check_expressions([*_conditions(*FAULTS), *OTHERS.values()])
    return cache, dict(zip((*FAULTS, *OTHERS), found, strict=True))


@pytest.fixture
def verdicts(asked_once: tuple[Path, dict[str, str | None]]) -> dict[str, str | None]:
    return asked_once[1]


@pytest.fixture
def cache(asked_once: tuple[Path, dict[str, str | None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a cache as it was left when everything had been asked."""
    shutil.copytree(asked_once[0], tmp_path / "cache")
    monkeypatch.setattr(sqlcheck, "cache_dir", lambda: tmp_path / "cache" / "jars")
    return tmp_path / "cache"


def test_each_expression_gets_its_own_answer(verdicts: dict[str, str | None]) -> None:
    for sql, wanted in FAULTS.items():
        found = verdicts[sql]
        if wanted is None:
            assert found is None, sql
        else:
            assert found is not None, sql
            assert wanted in found, sql
            assert "\n" not in found


_BLANKS = (" ",) * 20 + (
    "  ",
    "\n",
    "\t",
    "\r",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1f",
    "\x85",
    "\xa0",
    "\u2003",
    "\u2028",
    "\u3000",
)
_COLUMNS = (
    *("body", "BODY", "`body`", "severity_number", "offset", "attributes.n", "attributes.a.b", "attributes['a b']"),
    *("attributes.null", "attributes.from", "attributes.`a b`", "attributes . n", "attributes['a'].b"),
)
_LITERALS = (
    "'x'",
    "''",
    "r'\\d'",
    "5",
    "-5",
    "- 5",
    "007",
    "1.5",
    "00.5",
    "'--'",
    "'/*'",
    "'a\nb'",
    "'%a%'",
    "'\xe9'",
    "true",
    "null",
)
_TESTS = (
    "= ?",
    "<> ?",
    "== ?",
    "<= ?",
    "LIKE ?",
    "NOT LIKE ?",
    "RLIKE ?",
    "IS NULL",
    "IS NOT NULL",
    "IN ( ? , ? )",
    "BETWEEN ? AND ?",
)


def _random_condition(chance: random.Random, depth: int = 0) -> str:
    """Words with one blank between them."""
    kind = chance.randrange(6) if depth < 3 else 0
    if kind < 3:
        test = chance.choice(_TESTS)
        while "?" in test:
            test = test.replace("?", chance.choice(_LITERALS), 1)
        return f"{chance.choice(_COLUMNS)} {test}"
    inner = _random_condition(chance, depth + 1)
    if kind < 5:
        return f"NOT {inner}" if kind == 3 else f"( {inner} )"
    return f"{inner} {chance.choice(['AND', 'or'])} {_random_condition(chance, depth + 1)}"


def test_what_the_kernels_evaluate_is_right_to_spark_too() -> None:
    """Nobody asks Spark about it in `check`, but Spark evaluates it where another condition of the step needs Spark."""
    chance = random.Random(17)
    plain: list[str] = []
    while len(plain) < 150:
        words = _random_condition(chance).split(" ")
        sql = words[0] + "".join(chance.choice(_BLANKS) + word for word in words[1:])
        plain += [sql] if simple_condition(sql) is not None else []
    with open_catalyst() as catalyst:
        check = SqlCheck(catalyst)
        faults = {sql: check.fault(asked) for sql, asked in zip(plain, _conditions(*plain), strict=True)}
    assert {sql: fault for sql, fault in faults.items() if fault is not None} == {}


def test_any_type_may_be_asked_for(verdicts: dict[str, str | None]) -> None:
    assert verdicts["any type"] is None


def test_a_pattern_is_checked_by_java(verdicts: dict[str, str | None]) -> None:
    assert verdicts["a pattern"] is None
    named = verdicts["a pattern with a name"]
    assert named is not None
    assert named.startswith("'(?P<name>a)' is not a valid regular expression for Java")
    assert "regular expression for Java: Unmatched closing" in str(verdicts["a pattern that ends too early"])


def test_a_pattern_leaves_room_for_what_stands_behind_it(verdicts: dict[str, str | None]) -> None:
    """Spark gets it between anchors, which a comment would take for its own text."""
    for name in ("a pattern with a comment", "a pattern with an open quote"):
        assert "ends in an open comment of (?x), which would extend" in str(verdicts[name])
    assert verdicts["a pattern with a line of comment"] is verdicts["a pattern with flags"] is None


PLAIN = {
    "severity_number >= 17": True,
    "body LIKE '%health(%' AND service = 'x'": True,
    "upper(service) = 'X'": False,
    "severity_number = 'abc'": False,
    "nothing = 'x'": False,
}


@pytest.mark.parametrize(("sql", "plain"), PLAIN.items())
def test_plain_conditions_need_no_spark(sql: str, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Expression(sql=sql, columns=EVENT_COLUMNS, line=1, where="x")
    assert is_plain(asked) == plain
    if plain:
        monkeypatch.setattr(sqlcheck, "open_catalyst", lambda: pytest.fail("a JVM was started"))
        assert check_expressions([asked]) == [None]


def test_a_plain_condition_over_another_table_is_asked_of_spark(verdicts: dict[str, str | None]) -> None:
    assert is_plain(Expression(sql="stream = 'body'", columns=WHEN_COLUMNS, line=1, where="x"))
    found = verdicts["another table"]
    assert found is not None
    assert "unknown column 'Body'" in found


@pytest.mark.usefixtures("cache")
def test_what_was_checked_before_starts_nothing(
    verdicts: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlcheck, "open_catalyst", lambda jvm: pytest.fail("a JVM was started"))
    moved = [msgspec.structs.replace(one, line=7, where="y") for one in OTHERS.values()]
    found = check_expressions([*_conditions(*FAULTS, line=7), *moved])
    assert dict(zip((*FAULTS, *OTHERS), found, strict=True)) == verdicts


def test_a_damaged_cache_of_verdicts_is_ignored(cache: Path) -> None:
    (kept,) = cache.glob("checked-*.json")
    kept.write_text('{"half": ')
    assert check_expressions(_conditions("upper(body) = 'X'")) == [None]
    assert kept.read_text().endswith("}")


def test_nothing_to_check_starts_nothing() -> None:
    assert check_expressions([]) == []


def test_a_session_of_this_process_does_not_take_its_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark installs its handler of errors for the whole process; what it asks is the session's JVM, not ours."""
    monkeypatch.setattr(sqlcheck, "cache_dir", lambda: tmp_path / "cache" / "jars")
    installed = py4j.java_gateway.get_return_value
    install_exception_handler()
    try:
        (found,) = check_expressions(_conditions("severty_number = 1"))
    finally:
        py4j.java_gateway.get_return_value = installed
    assert found is not None
    assert "unknown column" in found


TREES = (
    "severity_number = -5 AND NOT (weight <=> 1.5 OR body < 'it\\'s \\\\ a') AND service LIKE 'a%' AND body RLIKE 'b'",
    "CAST(body AS INT) + 1L - 2S * 3Y / 4.5D div 5 % 6BD > 0.0 OR severity_number >= 1 OR weight <= 1e3 OR weight > 1F",
    "body IS NULL OR body IS NOT NULL OR (body = 'x') IS UNKNOWN OR +weight IN (0, 00L, -0.0, 0D, 0F, NULL)",
    "CASE WHEN time > TIMESTAMP '2026-01-01' THEN DATE '2026-01-01' ELSE time - INTERVAL 1 HOUR END IS NOT NULL",
    "(body IS NULL) = true",
    "exists(split(body, ','), x -> x = '' AND false) AND X'1F' = body AND `a.b`.c['d'] AND concat_ws(',', body) = 'x'",
)


@pytest.mark.parametrize("sql", TREES)
def test_a_tree_is_told_with_few_questions_as_spark_has_it(sql: str) -> None:
    with open_catalyst() as catalyst:
        tree = Tree(catalyst.classes)
        for node in tree.walk(tree.parse(sql)):
            kind = tree.kind(node)
            assert kind == node.nodeName() or "$" in node.getClass().getName()
            children = catalyst.listed(node.children())
            assert len(children) == len(tree.children(node)), kind
            assert all(told.fastEquals(child) for told, child in zip(tree.children(node), children, strict=True)), kind
            if kind == "Literal":
                _same_literal(tree, node)


def _same_literal(tree: Tree, node: Any) -> None:
    """What is told of a literal by its SQL is what its value and its type say."""
    value, kind = node.value(), str(node.dataType().simpleString())
    sql = tree.literal(node)
    assert sql is not None
    numeric = kind in ("tinyint", "smallint", "int", "bigint", "float", "double") or kind.startswith("decimal")
    assert is_number(sql) == (numeric and value is not None)
    assert is_boolean(sql) == (kind == "boolean" and value is not None)
    assert tree.text(node) == (str(value.toString()) if kind == "string" and value is not None else None)
    assert tree.whole_number(node) == (value if numeric and isinstance(value, int) else None)
    assert tree.is_zero(node) == (numeric and value is not None and float(str(value)) == 0)
