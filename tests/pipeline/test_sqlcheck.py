"""SQL is checked by Spark's own analyser, in a bare JVM."""

import py4j.java_gateway
import pytest
from pyspark.errors.exceptions.captured import install_exception_handler
from tests.pipeline.support import needs_java

from logboom.pipeline.config.sqlcheck import check_expressions
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, Expression

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
    "service = = 'x'": "Syntax error",
    "body like": "ends too early",
    "severity_number > 3 really": "Spark takes 'really' for a name",
    "service = array(1)": "incompatible types",
}


def test_each_expression_gets_its_own_answer() -> None:
    asked = [Expression(sql=sql, columns=EVENT_COLUMNS, line=1, where="x") for sql in FAULTS]
    for sql, found, wanted in zip(FAULTS, check_expressions(asked), FAULTS.values(), strict=True):
        if wanted is None:
            assert found is None, sql
        else:
            assert found is not None, sql
            assert wanted in found, sql
            assert "\n" not in found


def test_any_type_may_be_asked_for() -> None:
    (found,) = check_expressions([Expression(sql="trace_id", columns=EVENT_COLUMNS, line=1, where="x", wants="any")])
    assert found is None


def test_nothing_to_check_starts_nothing() -> None:
    assert check_expressions([]) == []


def test_a_session_of_this_process_does_not_take_its_errors() -> None:
    """pyspark installs its handler of errors for the whole process; what it asks is the session's JVM, not ours."""
    installed = py4j.java_gateway.get_return_value
    install_exception_handler()
    try:
        (found,) = check_expressions(
            [Expression(sql="severty_number = 1", columns=EVENT_COLUMNS, line=1, where="x", wants="boolean")]
        )
    finally:
        py4j.java_gateway.get_return_value = installed
    assert found is not None
    assert "unknown column" in found
