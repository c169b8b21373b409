"""What the bare JVM that evaluates SQL keeps in memory, and what happens where it has too little.

No `upper` or `lower`: before the first Spark looks for the title case of all of Unicode, 1.7 s of CPU time.
"""

import gc
import logging
import warnings
from pathlib import Path

import pytest

from logboom.base.units import MIB
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.execute.verdicts import Verdicts
from logboom.pipeline.plan.outcomes import FAILED, TRUE
from logboom.pipeline.spark import catalyst
from logboom.pipeline.spark.catalyst import Catalyst, CatalystJvm, open_catalyst
from logboom.pipeline.sql.memory import variant_of

TABLE = [("body", "_text")]


def handed_out(spark: Catalyst) -> int:
    """Objects that the JVM keeps for this process."""
    return int(spark._handed_out.size())


def test_what_was_evaluated_is_forgotten() -> None:
    """`tap` evaluates for as long as it runs."""
    with open_catalyst() as spark:
        asked = [spark.parse("length(body)"), spark.parse("concat(body, '!')")]
        assert spark.evaluate(TABLE, [["paid"], [None], ["über"]], asked) == [[4, "paid!"], [None, None], [4, "über!"]]
        before = handed_out(spark)
        for _ in range(3):
            assert spark.evaluate(TABLE, [["sent"]] * 5, asked) == [[4, "sent!"]] * 5
        assert handed_out(spark) == before


def test_texts_beyond_the_memory_are_evaluated_or_told_of_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Where a call gets no answer, py4j tells of it through logging, which a command does not set up.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(catalyst, "_JVM_OPTIONS", ("-Xmx130m", *catalyst._JVM_OPTIONS[1:]))
    texts = [letter * 5 * MIB for letter in "abcdefghij"]
    with pytest.raises(PipelineError, match="was too large for an expression"):
        _evaluate_lengths(texts, "x" * 80 * MIB)
    assert "Traceback" not in capfd.readouterr().err
    # py4j does not close a socket that found no JVM. From Python 3.12 on a cycle holds it, with the error that came out
    # of a context manager as another one: left to a later collection, it would fail the test that runs then.
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()


def _evaluate_lengths(texts: list[str], too_large: str) -> None:
    with open_catalyst(CatalystJvm()) as spark:
        asked = [spark.parse("length(body)"), spark.parse("left(concat(body, '!'), 3)")]  # which copies it
        found = spark.evaluate(TABLE, [[text] for text in texts], asked)
        assert found == [[5 * MIB, text[:3]] for text in texts]
        spark.evaluate(TABLE, [[too_large]], asked)


MANY = "[" + "1," * (5 * MIB) + "1]"
TOO_MUCH = {
    "split(body, ',')[3] = 'x'": MANY,
    "size(from_json(body, 'array<string>')) = 3": MANY,
    "CAST(parse_json(body) AS ARRAY<STRING>)[1] = 'x'": MANY,
    "regexp_replace(body, '', '0123456789') = 'x'": "a" * 10 * MIB,
    "attributes.n = 1": '{"n":' + "1" * 16 * MIB + "}",
}
ENOUGH = {
    "split(body, ',')[0] = '1'": "1," * MIB,
    "hex(body) RLIKE '^41'": "A" * 10 * MIB,
    " OR ".join(["hex(body) = 'x'"] * 20) + " OR hex(body) RLIKE '^41'": "A" * 10 * MIB,
    "attributes.n = 1": '{"n":1,"text":"' + "x" * 10 * MIB + '"}',
    "variant_get(attributes, '$.n', 'int') = 1": '{"n":1,"text":"' + "x" * 8 * MIB + '"}',
    "length(body) > 5": "a" * 32 * MIB,
}
COLUMNS = (("body", "string"), ("attributes", "variant"))


def test_an_event_that_is_too_large_for_an_expression_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not evaluated: the smallest heap of a run would not do for one of them."""
    monkeypatch.setattr(catalyst, "_JVM_OPTIONS", ("-Xmx700m", *catalyst._JVM_OPTIONS[1:]))
    with open_catalyst(CatalystJvm()) as spark:
        for sql, text in TOO_MUCH.items():
            assert _verdict(spark, sql, text) == FAILED, sql
            assert _value(spark, sql, text) is None, sql
        for sql, text in ENOUGH.items():
            assert _verdict(spark, sql, text) == TRUE, sql


def _verdict(spark: Catalyst, sql: str, text: str) -> object:
    return _evaluated(spark, Verdicts(spark).verdict(sql, COLUMNS), sql, text)


def _value(spark: Catalyst, sql: str, text: str) -> object:
    return _evaluated(spark, Verdicts(spark).value(sql, COLUMNS), sql, text)


def _evaluated(spark: Catalyst, expression: object, sql: str, text: str) -> object:
    table = [("body", "_text"), ("attributes", variant_of("_text"))]
    row = [None, text] if "attributes" in sql else [text, None]
    return spark.evaluate(table, [row], [expression])[0][0]


def test_a_machine_whose_name_nothing_resolves_evaluates_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts").touch()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djdk.net.hosts.file={tmp_path / 'hosts'}")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with open_catalyst(CatalystJvm()) as spark:
        assert spark.evaluate(TABLE, [["paid"]], [spark.parse("length(body)")]) == [[4]]


def test_what_spark_says_outlives_its_jvm() -> None:
    with pytest.raises(RuntimeError, match=r"Spark's classes failed: .*no\.such\.Class"), open_catalyst() as spark:
        spark.classes.java_class("no.such.Class")
