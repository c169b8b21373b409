"""Checks Spark SQL expressions with Spark's own parser and analyser, in a bare JVM without a session.

Knows how to start that JVM (py4j) and how to ask Catalyst. Must not import pyspark: its session costs seconds, this
costs one. Must not know what the expressions are for.
"""

import contextlib
import functools
import glob
import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import py4j.java_gateway
import py4j.protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from logboom.base.settings import nearest
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import Column, Expression
from logboom.pipeline.spark.jars import cache_dir
from logboom.pipeline.spark.jvm import java_command
from logboom.pipeline.spark.jvm_archive import ClassArchive

_CATALYST: Final = "org.apache.spark.sql.catalyst"
_OPENED_PACKAGES: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
_CALL: Final = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_OPERATORS: Final = frozenset(
    ("and", "or", "not", "in", "like", "rlike", "between", "when", "then", "else", "cast", "is", "as")
)
_JVM_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",  # lives for a second: compiling well costs more than it gives
    "-XX:+UseSerialGC",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
)


@contextmanager
def _own_errors() -> Iterator[None]:
    """A Spark session of this process replaces py4j's handler of errors by one that asks the session's JVM about them;
    those of our own JVM it cannot know."""
    installed = py4j.java_gateway.get_return_value
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value
    try:
        yield
    finally:
        py4j.java_gateway.get_return_value = installed


def check_expressions(expressions: Sequence[Expression]) -> list[str | None]:
    """What is wrong with each expression, None where nothing is. JavaMissingError where no Java can be found."""
    if not expressions:
        return []
    with _catalyst() as catalyst, _own_errors():
        return [catalyst.fault(expression) for expression in expressions]


def spark_jars_dir() -> Path:
    """Where the installed pyspark keeps Spark's own jars, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PipelineError("pyspark is not installed; install it with: pip install 'logboom[spark]'")
    return Path(spec.origin).parent / "jars"


@contextlib.contextmanager
def _catalyst() -> Iterator["_Catalyst"]:
    java = java_command()
    class_path = sorted(glob.glob(f"{spark_jars_dir()}/*.jar"))
    archive = ClassArchive(cache_dir().parent, java, class_path)
    try:
        port, process = _launched(java, class_path, archive)
    except ValueError:  # it said something else than its port
        if not archive.exists:
            raise
        archive.forget()
        port, process = _launched(java, class_path, archive)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield _Catalyst(gateway.jvm)
    finally:
        gateway.shutdown()
        process.stdin.close()  # by which it ends
        archive.keep(process)


def _launched(java: str, class_path: list[str], archive: ClassArchive) -> tuple[int, Any]:
    """The port of a new JVM, and its process."""
    port, process = launch_gateway(
        jarpath=next(jar for jar in class_path if Path(jar).name.startswith("py4j")),
        classpath=":".join(class_path),
        javaopts=[*_JVM_OPTIONS, *archive.options],
        java_path=java,
        die_on_exit=True,
        return_proc=True,
    )
    return port, process


class _Catalyst:
    """Spark's parser and analyser over a catalogue that holds nothing but the built-in functions."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._parser = self._module(f"{_CATALYST}.parser.CatalystSqlParser")
        self._functions = self._module(f"{_CATALYST}.analysis.FunctionRegistry").builtin()
        catalog = getattr(jvm, f"{_CATALYST}.catalog.SessionCatalog")(
            getattr(jvm, f"{_CATALYST}.catalog.InMemoryCatalog")(
                jvm.org.apache.spark.SparkConf(), jvm.org.apache.hadoop.conf.Configuration()
            ),
            self._functions,
            self._module(f"{_CATALYST}.analysis.TableFunctionRegistry").builtin(),
        )
        self._analyzer = getattr(jvm, f"{_CATALYST}.analysis.Analyzer")(catalog)
        patterns = self._module(f"{_CATALYST}.trees.TreePattern")
        self._current_like, self._subquery = patterns.CURRENT_LIKE(), patterns.PLAN_EXPRESSION()

    def fault(self, expression: Expression) -> str | None:
        """One sentence, or None for an expression that may run."""
        try:
            resolved = self._resolve(expression)
        except Py4JJavaError as error:
            return self._sentence(error.java_exception, expression)
        if isinstance(resolved, str):
            return resolved
        found = str(resolved.dataType().sql()).lower()
        if expression.wants == "boolean" and found != "boolean":
            return f"must be true or false, but is of type {found}"
        return None

    def _resolve(self, expression: Expression) -> Any:
        """The resolved expression, or a sentence saying why it may not stand here."""
        parsed = self._parser.parseExpression(expression.sql)
        if parsed.nodeName() == "Alias":
            return f"ends too early: Spark takes '{parsed.name()}' for a name given to what stands before it"
        none, empty = self._module("scala.None"), self._seq([])
        fresh = self._module(f"{_CATALYST}.expressions.NamedExpression").newExprId()
        alias = getattr(self._jvm, f"{_CATALYST}.expressions.Alias")(parsed, "checked", fresh, empty, none, empty)
        project = getattr(self._jvm, f"{_CATALYST}.plans.logical.Project")(
            self._seq([alias]), self._relation(expression.columns)
        )
        tracker = getattr(self._jvm, f"{_CATALYST}.QueryPlanningTracker")(none)
        extract = self._module(f"{_CATALYST}.expressions.ExtractSemiStructuredFields")
        with_paths = extract.apply(self._analyzer.execute(project))  # `attributes:name`, a rule that sessions add
        analyzed = self._analyzer.executeAndCheck(with_paths, tracker)
        resolved = analyzed.expressions().head()
        if analyzed.nodeName() != "Project" or analyzed.child().nodeName() != "LocalRelation":
            return "aggregates, window functions and generators cannot be used on single records"
        if resolved.containsPattern(self._subquery):
            return "subqueries cannot be used here: there are no tables"
        if resolved.containsPattern(self._current_like):
            return "the current time differs when a batch is replayed; compare with observed_time instead"
        if not resolved.deterministic():
            return "random values differ when a batch is replayed; use a hash of event_id instead"
        return resolved

    @functools.lru_cache(maxsize=64)  # noqa: B019 - lives as long as its JVM, which is seconds
    def _relation(self, columns: tuple[Column, ...]) -> Any:
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns)
        schema = self._module("org.apache.spark.sql.types.StructType").fromDDL(ddl)
        attributes = self._module(f"{_CATALYST}.types.DataTypeUtils").toAttributes(schema)
        return getattr(self._jvm, f"{_CATALYST}.plans.logical.LocalRelation")(
            attributes, self._seq([]), False, self._module("scala.None")
        )

    def _sentence(self, error: Any, expression: Expression) -> str:
        """Spark's message in one line, with the nearest name we know."""
        # The catalogue behind the analyser has no tables and no functions beside the built-in ones, and says so in
        # words of its own; a name that is called and not known explains any such failure.
        name = self._unknown_function(expression.sql)
        if name is not None:
            return f"unknown function '{name}'" + _meant(name, self._function_names())
        try:
            condition, parameters = str(error.getCondition()), dict(error.getMessageParameters())
        except Py4JError:  # not one of Spark's own exceptions
            return f"Spark cannot read it: {_first_line(str(error.getMessage()))}"
        if condition.startswith("UNRESOLVED_COLUMN"):
            name = parameters["objectName"].replace("`", "")
            return f"unknown column '{name}'" + _meant(name, [column for column, _ in expression.columns])
        return _first_line(re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", str(error.getMessage())))

    def _unknown_function(self, sql: str) -> str | None:
        known = {name.lower() for name in self._function_names()}
        called = (name for name in _CALL.findall(_QUOTED.sub("''", sql)) if name.lower() not in known)
        return next((name for name in called if name.lower() not in _OPERATORS), None)

    def _function_names(self) -> list[str]:
        listed = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(self._functions.listFunction())
        return [identifier.funcName() for identifier in listed]

    def _module(self, name: str) -> Any:
        """A Scala object."""
        return self._jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)

    def _seq(self, items: list[Any]) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()


def _meant(name: str, known: list[str]) -> str:
    found = nearest(name, known)
    return f" (did you mean '{found}'?)" if found else ""


def _first_line(message: str) -> str:
    """Spark adds the statement and a stack below; the first line says it all."""
    head = message.strip().split("\n")[0]
    return re.sub(r"\s*SQLSTATE: \w+.*$", "", head)
