"""Spark's SQL parser, analyser and optimiser in a bare JVM. It starts in about a second, much faster than a session.

Knows how to start that JVM (py4j) and how to call Catalyst. Must not import pyspark, which is slow to load, and must
not know what expressions are used for.

Objects that the JVM has returned stay in its memory until they are released (`Catalyst.releasing`). A check needs few
and ends; but there may be many rows, and a command that shows live events runs for hours.

Catalyst reads its settings from the calling thread. All calls of one `Catalyst` use one connection and so one thread;
they use the same settings as a session of the pipeline (`spark.settings`), because settings change the meaning of SQL:
an error in one dialect is null in another.
"""

import contextlib
import functools
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import py4j.java_gateway
import py4j.protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, JavaObject

from logboom.base.units import MIB
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import Column
from logboom.pipeline.spark.causes import cause_of
from logboom.pipeline.spark.jars import cache_dir
from logboom.pipeline.spark.jvm import check_java_version, find_java, silence_py4j, spark_jars
from logboom.pipeline.spark.jvm_archive import ClassArchive
from logboom.pipeline.spark.jvm_classes import JvmClasses
from logboom.pipeline.spark.settings import ANSI, SQL_SETTINGS

_SERVER: Final = "py4j.GatewayServer"
_PACKAGE: Final = "org.apache.spark.sql.catalyst"
_ID_PREFIX: Final = "o"  # py4j's prefix of ids
_CONVERT: Final = "ConvertToLocalRelation"  # goes from the outside in, so it is asked once for each projection
_EVALUATING_RULES: Final = ("ReplaceExpressions", "RewriteWithExpression", _CONVERT, _CONVERT, _CONVERT)
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
_HEAP_MIB: Final = 1024
"""A check needs some 100 MiB; this is a limit."""
_CHUNK_CHARACTERS: Final = 4 * MIB
"""Size of the texts of rows that are evaluated together: a hundredth of the heap, since there are several copies of a
text."""
_JVM_OPTIONS: Final = (
    f"-Xmx{_HEAP_MIB}m",
    # Out of memory, a call gets no answer, and later calls have wrong settings because py4j uses another thread.
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:TieredStopAtLevel=1",  # the JVM runs for a second: optimising compilation costs more than it gains
    "-XX:+UseSerialGC",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
)


class CatalystJvm:
    """The JVM of one `Catalyst`, which starts in the background."""

    def __init__(self) -> None:
        """Start the JVM and return at once. JavaMissingError if no Java can be found."""
        self._class_path = spark_jars()
        self._java = find_java()
        self._archive = ClassArchive(cache_dir().parent, "check", self._java, self._class_path)
        if not self._archive.exists:  # this Java has written an archive, so its version was checked before
            check_java_version(self._java)
        self._process = self._launched()

    def connect(self) -> JavaGateway:
        """Wait until it is ready."""
        silence_py4j()
        try:
            parameters = self._address()
        except ValueError:  # it ended, or printed something else instead of its port
            if not self._archive.exists:
                raise
            self._archive.forget()
            self.kill()
            self._process = self._launched()
            parameters = self._address()
        return JavaGateway(gateway_parameters=parameters)

    def kill(self) -> None:
        """Kill it if it has not ended yet."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._close_pipes()

    def close(self, gateway: JavaGateway) -> None:
        """Let it end, and keep the class archive that it writes then if there was none."""
        gateway.shutdown()
        self._close_pipes()
        self._archive.keep(self._process)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _launched(self) -> "subprocess.Popen[bytes]":
        first = [jar for jar in self._class_path if Path(jar).name.startswith("py4j")]  # searched first
        options = (*_JVM_OPTIONS, *self._archive.options, "-classpath", os.pathsep.join((*first, *self._class_path)))
        # Port 0: any free one. The JVM ends when its standard input is closed, however this process ends.
        server = (_SERVER, "--die-on-broken-pipe", "--enable-auth", "0")
        # Without it Spark's classes look up the name of this machine, which fails where nothing resolves that name.
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
        return subprocess.Popen(
            (self._java, *options, *server),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def _address(self) -> GatewayParameters:
        """The server prints its port when it listens, then the secret that callers must send."""
        assert self._process.stdout is not None
        port, secret = (self._process.stdout.readline().decode(errors="replace").strip() for _ in range(2))
        # Releasing each object would be a third of all calls, and the JVM runs for a second.
        return GatewayParameters(port=int(port), auth_token=secret, auto_convert=True, enable_memory_management=False)


@contextlib.contextmanager
def open_catalyst(jvm: CatalystJvm | None = None) -> Iterator["Catalyst"]:
    """Catalyst in a JVM, a new one if none is given. The JVM ends with the block. JavaMissingError if no Java can be
    found."""
    jvm = CatalystJvm() if jvm is None else jvm
    gateway = jvm.connect()
    try:
        with _own_errors():
            yield Catalyst(gateway)
    except py4j.protocol.Py4JNetworkError as error:
        raise PipelineError(
            f"the JVM that evaluates SQL here has ended: it may have {_HEAP_MIB} MiB of memory, and an event was too "
            "large for an expression"
        ) from error
    except py4j.protocol.Py4JJavaError as error:
        # What it says is asked of the JVM, which ends here.
        raise RuntimeError(f"Spark's classes failed: {cause_of(error)}") from error
    finally:
        jvm.close(gateway)


@contextlib.contextmanager
def _own_errors() -> Iterator[None]:
    """A Spark session in this process replaces py4j's error handler by one that queries the session's JVM about errors,
    which cannot know those of this JVM."""
    installed = py4j.java_gateway.get_return_value
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value
    try:
        yield
    finally:
        py4j.java_gateway.get_return_value = installed


class Catalyst:
    """Spark's parser and analyser with an empty catalogue that only has the built-in functions.

    If Spark refuses an expression, a Py4JJavaError with Spark's exception is raised, unless a method says otherwise.
    """

    def __init__(self, gateway: JavaGateway) -> None:
        """Change the settings of the session that is active in this thread of the JVM, if there is one. It must not be
        shared with other users."""
        self._gateway = gateway
        self.classes = JvmClasses(gateway.jvm)
        self._conf = self.module("org.apache.spark.sql.internal.SQLConf").get()
        for key, value in SQL_SETTINGS.items():
            self._conf.setConfString(key, value)
        self._parser = self.module(f"{_PACKAGE}.parser.CatalystSqlParser")
        self._functions = self.module(f"{_PACKAGE}.analysis.FunctionRegistry").builtin()
        catalog = self.of("catalog.SessionCatalog")(
            self.of("catalog.InMemoryCatalog")(
                self.classes.named("org.apache.spark.SparkConf")(),
                self.classes.named("org.apache.hadoop.conf.Configuration")(),
            ),
            self._functions,
            self.module(f"{_PACKAGE}.analysis.TableFunctionRegistry").builtin(),
        )
        self._analyzer = self.of("analysis.Analyzer")(catalog)
        self._extract = self.module(f"{_PACKAGE}.expressions.ExtractSemiStructuredFields")
        self._none = self.module("scala.None")

    def parse(self, sql: str) -> Any:
        """The parsed expression; columns and functions are still only names."""
        return self._parser.parseExpression(sql)

    @contextlib.contextmanager
    def ansi(self) -> Iterator[None]:
        """Expressions that are parsed and analysed in this block raise an error where they would otherwise be null. An
        expression keeps its mode, whatever is set when it is evaluated."""
        self._conf.setConfString(ANSI, "true")
        try:
            yield
        finally:
            self._conf.setConfString(ANSI, SQL_SETTINGS[ANSI])

    def folded(self, plan: Any) -> Any:
        """The plan with its constant parts evaluated."""
        return self.module(f"{_PACKAGE}.optimizer.ConstantFolding").apply(plan)

    def project(self, parsed: Any, columns: tuple[Column, ...]) -> Any:
        """The analysed plan that computes one parsed expression over a table with these columns."""
        project = self.of("plans.logical.Project")(self.seq([self._alias(parsed, "checked")]), self._table(columns))
        tracker = self.of("QueryPlanningTracker")(self._none)
        with_paths = self._extract.apply(self._analyzer.execute(project))  # `attributes:name`, a rule of sessions
        return self._analyzer.executeAndCheck(with_paths, tracker)

    def evaluate(
        self, table: Sequence[tuple[str, str]], rows: Sequence[Sequence[str | None]], expressions: Sequence[Any]
    ) -> list[list[Any]]:
        """The values of expressions, row by row: integers, doubles and texts, None for null.

        `table`: the name of each column, and the SQL that computes its value from a row's text `_text`.
        """
        found: list[list[Any]] = []
        for chunk in _chunks(rows):
            with self.releasing():
                found += self._evaluated(table, chunk, expressions)
        return found

    @contextlib.contextmanager
    def releasing(self) -> Iterator[None]:
        """Let the JVM release the objects that it returned within the block, except classes and Scala objects."""
        handed_out, first = self._handed_out, self.classes.named("java.lang.Object")()
        yield
        last = self.classes.named("java.lang.Object")()
        kept = self.classes.kept_ids()
        made = (f"{_ID_PREFIX}{number}" for number in range(_number(first), _number(last) + 1))
        names = ",".join(each for each in made if each not in kept)
        gone = self.module("org.apache.spark.util.Utils").stringToSeq(names)
        listed = self.classes.java_list(gone)
        handed_out.removeAll(listed)
        self._gateway.detach(gone)
        self._gateway.detach(listed)

    @functools.cached_property
    def _handed_out(self) -> Any:
        """py4j's ids of objects that the JVM keeps for this process, as a Java set. Removing one releases the
        object."""
        return self._gateway.java_gateway_server.getGateway().getBindings().keySet()

    def _evaluated(
        self, table: Sequence[tuple[str, str]], rows: Sequence[Sequence[str | None]], expressions: Sequence[Any]
    ) -> list[list[Any]]:
        """The same for as many rows as the JVM can hold at once.

        The optimiser evaluates them: a projection of a table of literals becomes a table of literals, once functions
        that are defined by others are replaced by these.
        """
        names = [f"_text_{number}" for number in range(len(table))]
        schema = self.module("org.apache.spark.sql.types.StructType").fromDDL(
            ", ".join(f"`{name}` string" for name in names)
        )
        attributes = self.module(f"{_PACKAGE}.types.DataTypeUtils").toAttributes(schema)
        given = self.of("plans.logical.LocalRelation")(
            attributes, self.seq([self._row(row) for row in rows]), False, self._none
        )
        columns = [
            self.parse(f"{sql.replace('_text', text)} AS `{name}`")
            for text, (name, sql) in zip(names, table, strict=True)
        ]
        typed = self.of("plans.logical.Project")(self.seq(columns), given)
        asked = [self._alias(expression, f"_answer_{number}") for number, expression in enumerate(expressions)]
        plan = self.of("plans.logical.Project")(self.seq(asked), typed)
        with_paths = self._extract.apply(self._analyzer.execute(plan))
        analysed = self._analyzer.executeAndCheck(with_paths, self.of("QueryPlanningTracker")(self._none))
        answered = analysed
        for rule in _EVALUATING_RULES:
            answered = self.module(f"{_PACKAGE}.optimizer.{rule}").apply(answered)
        assert answered.nodeName() == "LocalRelation", f"Spark did not fully evaluate {answered.toString()}"
        types = [attribute.dataType() for attribute in self.listed(answered.output())]
        return [
            [None if row.isNullAt(number) else _plain(row.get(number, kind)) for number, kind in enumerate(types)]
            for row in self.listed(answered.data())
        ]

    def _row(self, texts: Sequence[str | None]) -> Any:
        values = self._gateway.new_array(self.classes.named("java.lang.Object"), len(texts))
        for number, text in enumerate(texts):
            if text is not None:
                values[number] = self.classes.static("org.apache.spark.unsafe.types.UTF8String", "fromString")(text)
        return self.of("expressions.GenericInternalRow")(values)

    def _alias(self, expression: Any, name: str) -> Any:
        empty = self.seq([])
        fresh = self.module(f"{_PACKAGE}.expressions.NamedExpression").newExprId()
        return self.of("expressions.Alias")(expression, name, fresh, empty, self._none, empty)

    @functools.lru_cache(maxsize=64)  # noqa: B019 - lives as long as its JVM, which is seconds
    def _table(self, columns: tuple[Column, ...]) -> Any:
        """A table without rows."""
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns)
        schema = self.module("org.apache.spark.sql.types.StructType").fromDDL(ddl)
        attributes = self.module(f"{_PACKAGE}.types.DataTypeUtils").toAttributes(schema)
        return self.of("plans.logical.LocalRelation")(attributes, self.seq([]), False, self._none)

    @functools.lru_cache(maxsize=1)  # noqa: B019 - as above
    def function_names(self) -> tuple[str, ...]:
        """The names of all built-in functions."""
        return tuple(identifier.funcName() for identifier in self.listed(self._functions.listFunction()))

    # --- Scala from Python ------------------------------------------------------------------------------------------

    def of(self, name: str) -> Any:
        """A class of Catalyst by its name below Catalyst's package."""
        return self.classes.named(f"{_PACKAGE}.{name}")

    def module(self, name: str) -> Any:
        """A Scala object."""
        return self.classes.module(name)

    def seq(self, items: Sequence[Any]) -> Any:
        """A Scala sequence."""
        return self.classes.seq(items)

    def listed(self, seq: Any) -> list[Any]:
        """The members of a Scala sequence."""
        return self.classes.listed(seq)


def _number(handed_out: JavaObject) -> int:
    """The number in an object's id: py4j counts the objects that it returns."""
    return int(handed_out._target_id.removeprefix(_ID_PREFIX))  # noqa: SLF001 - it has no other name for it


def _plain(value: Any) -> Any:
    """Convert a Spark value to Python: Spark has its own type for texts."""
    return value.toString() if isinstance(value, JavaObject) else value


def _chunks(rows: Sequence[Sequence[str | None]]) -> Iterator[Sequence[Sequence[str | None]]]:
    """Split rows into groups with this much text each, or one larger row. Rows without text are in one group."""
    first, characters = 0, 0
    for number, row in enumerate(rows):
        mine = sum(len(text) for text in row if text is not None)
        if number > first and characters + mine > _CHUNK_CHARACTERS:
            yield rows[first:number]
            first, characters = number, 0
        characters += mine
    yield rows[first:]
