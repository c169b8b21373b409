"""Checks the SQL of a pipeline. Each fault is one sentence: Spark's verdict, and what to write instead.

Knows what a condition on one record may be. Must not import pyspark, nor know which part of a file an expression
belongs to.

There are three sources of a verdict, cheapest first. An expression that the kernels evaluate themselves is known to be
valid. Earlier verdicts are in `sqlcache`. The rest is checked by Spark's analyser in a JVM without a session.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from logboom.base.settings import nearest
from logboom.pipeline.config.sqlcache import VerdictCache
from logboom.pipeline.plan.names import whole_names_pattern
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, Expression
from logboom.pipeline.plan.sql_text import bracketed
from logboom.pipeline.route.conditions import BLANKS, simple_condition
from logboom.pipeline.route.values import simple_value
from logboom.pipeline.spark.catalyst import Catalyst, CatalystJvm, open_catalyst
from logboom.pipeline.spark.jars import cache_dir
from logboom.pipeline.sql.attributes import PlainAttributes
from logboom.pipeline.sql.copies import copies_fault, written_fault
from logboom.pipeline.sql.review import review
from logboom.pipeline.sql.tree import ALIAS, Tree

_RANDOM: Final = frozenset(("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"))
_OPERATORS: Final = frozenset(
    ("and", "or", "not", "in", "like", "rlike", "between", "when", "then", "else", "cast", "is", "as")
)
_CALL: Final = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_READ_ATTRIBUTE: Final = re.compile(r"try_variant_get\(attributes, \$\['([^']*)'\]\)")
"""How Spark's messages write an attribute that a condition calls `attributes.NAME`."""
_FIELD: Final = re.compile(
    r"\battributes\s*(?:\.\s*`?([A-Za-z_][\w.]*)|\[\s*['\"]([^'\"]+)['\"]|:\s*([A-Za-z_][\w.]*))"
)
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "whole number"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("timestamp", "timestamp_ntz", "date"), "time"),
    "boolean": "true or false",
}
_PIECE: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|\w+|[^\s\w]")
"""A literal, a word or a sign."""
_PIECES_MAX: Final = 10_000
"""Limits the check to some seconds: each part of an expression costs a call to the JVM."""
_BRACKETS_MAX: Final = 100
"""Far below the depth at which the parser of Spark, or of a running pipeline, would overflow its stack."""
_UNDER_ANSI, _NO_CAST = " with ANSI mode on", "cannot cast"
"""Part of Spark's messages; users cannot change the setting."""
_CAST: Final = "Cast"
_COMPARED_AS_TEXTS: Final = frozenset(("In", "EqualTo", "EqualNullSafe", "Not"))
_TOO_DEEP: Final = "is nested too deeply for Spark to read"
_ONE_RECORD: Final = "aggregates, window functions and generators cannot be used on single records"


def check_expressions(expressions: Sequence[Expression], jvm: CatalystJvm | None = None) -> list[str | None]:
    """The fault of each expression, or None. JavaMissingError if no Java can be found.

    `jvm`: a JVM that is already starting, to be used if one is needed.
    """
    cache = VerdictCache(cache_dir().parent)
    asked = [one for one in expressions if not is_plain(one) and one not in cache]
    if asked:
        with open_catalyst(jvm) as catalyst:
            cache.keep({one: SqlCheck(catalyst).fault(one) for one in asked})
    return [None if is_plain(one) else cache[one] for one in expressions]


def is_plain(expression: Expression) -> bool:
    """Whether it needs no check by Spark: one column, or a condition that the kernels evaluate themselves."""
    if expression.wants == "any":
        return expression.sql.strip(BLANKS) in dict(expression.columns) or simple_value(expression.sql) is not None
    return expression.wants == "boolean" and simple_condition(expression.sql, expression.columns) is not None


class SqlCheck:
    """Checks expressions with one Catalyst; faults are sentences that say what to do."""

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst
        self._tree = Tree(catalyst.classes)

    def fault(self, expression: Expression) -> str | None:
        """One sentence, or None for an expression that may run."""
        if expression.wants == "pattern":
            return self._pattern_fault(expression.sql)
        if (fault := _size_fault(expression.sql)) is not None:
            return fault
        try:
            written = self._catalyst.parse(expression.sql)
            if (fault := written_fault(self._tree, written, len(_PIECE.findall(expression.sql)))) is not None:
                return fault
            parsed = self._read(written, expression)
            return (
                self._call_fault(parsed)
                or self._bracketed_fault(expression.sql)
                or copies_fault(self._tree, parsed)
                or self._analysed_fault(parsed, expression)
                or self._types_fault(expression)
            )
        except Py4JJavaError as error:
            return self._sentence(error.java_exception, expression)
        except RecursionError:
            return _TOO_DEEP

    def _read(self, written: Any, expression: Expression) -> Any:
        """The result of Spark's parser for an expression, with attributes as they are read at run time."""
        if ("attributes", "variant") not in expression.columns:
            return written
        return PlainAttributes(self._tree).rewrite(written, expression.sql)

    def _types_fault(self, expression: Expression) -> str | None:
        """Faults of types in ANSI mode. Expressions run in ANSI mode, since only that distinguishes a failure inside an
        expression from null. So an expression with such a fault must not run."""
        try:
            with self._catalyst.ansi():
                parsed = self._read(self._catalyst.parse(expression.sql), expression)
                self._catalyst.project(parsed, expression.columns)
        except Py4JJavaError as error:
            sentence = self._sentence(error.java_exception, expression).replace(_UNDER_ANSI, "").rstrip(". ")
            advice = "write a comparison instead" if _NO_CAST in sentence else "compare values of one type"
            return f"{sentence}; {advice}"
        return None

    def _pattern_fault(self, pattern: str) -> str | None:
        if fault := self._java_pattern_fault(pattern):
            return f"{pattern!r} is not a valid regular expression for Java: {fault}"
        if fault := self._java_pattern_fault(whole_names_pattern(pattern)):
            return (
                f"{pattern!r} ends in an open comment of (?x), which would extend beyond the pattern: remove the "
                "comment, or end its line"
            )
        return None

    def _java_pattern_fault(self, pattern: str) -> str | None:
        try:
            self._catalyst.classes.static("java.util.regex.Pattern", "compile")(pattern)
        except Py4JJavaError as error:
            return _first_line(str(error.java_exception.getMessage()))
        return None

    def _bracketed_fault(self, sql: str) -> str | None:
        """Why a readable expression cannot be part of a larger one, or None."""
        try:
            self._catalyst.parse(bracketed(sql))
        except Py4JJavaError:
            return "ends in an open comment: remove the backslash at the end of the line"
        return None

    def _call_fault(self, parsed: Any) -> str | None:
        """Why an element of the expression must not be used on records, whatever their values; or None."""
        if self._tree.kind(parsed) == ALIAS:
            return f"ends too early: Spark reads '{parsed.name()}' as an alias of the expression before it"
        return review(self._tree, parsed)

    def _analysed_fault(self, parsed: Any, expression: Expression) -> str | None:
        analysed = self._catalyst.project(parsed, expression.columns)
        resolved = analysed.expressions().head()
        if analysed.nodeName() != "Project" or analysed.child().nodeName() != "LocalRelation":
            return _ONE_RECORD
        fault = self._replay_fault(resolved)
        if fault is not None:
            return fault
        found = str(resolved.dataType().sql()).lower()
        if expression.wants == "boolean" and found != "boolean":
            return f"must be true or false, but is of type {found}"
        if expression.wants == "timestamp" and found not in ("timestamp", "timestamp_ntz", "date"):
            return f"must be a time, but is of type {found}; write CAST(... AS TIMESTAMP)"
        if expression.wants == "int" and found not in ("tinyint", "smallint", "int", "bigint"):
            return f"must be a whole number, but is of type {found}; write CAST(... AS INT)"
        fault = None
        if _QUOTED.search(expression.sql):
            fault = self._literal_fault(resolved) or self._format_fault(analysed)
        return fault or self._constant_fault(analysed)

    def _constant_fault(self, analysed: Any) -> str | None:
        """The fault of a constant part that fails: Spark computes it while it plans a query, and nothing catches the
        failure there."""
        for plan in (analysed, self._without_stand_ins(analysed)):
            try:
                self._catalyst.folded(plan)
            except Py4JJavaError as error:
                return f"a part of it without columns fails for every event: {_said(error.java_exception)}"
        return None

    def _without_stand_ins(self, analysed: Any) -> Any:
        """The plan in which functions that are aliases of other expressions are replaced by these."""
        return self._tree.module("org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions").apply(analysed)

    def _format_fault(self, analysed: Any) -> str | None:
        """The fault of a time format: Spark reads formats when it generates the Java code of a projection."""
        replaced = self._without_stand_ins(analysed)
        bind = self._tree.module("org.apache.spark.sql.catalyst.expressions.BindReferences")
        attributes = self._tree.new("package$AttributeSeq", replaced.child().output())
        bound = bind.bindReference(replaced.expressions().head(), attributes, False)
        try:
            bound.genCode(self._catalyst.of("expressions.codegen.CodegenContext")())
        except Py4JJavaError as error:  # BETWEEN has no code either; the optimiser replaces it first
            return _pattern_of_time_fault(str(error.java_exception.getMessage()))
        return None

    def _replay_fault(self, resolved: Any) -> str | None:
        """Parts that could give another result when a batch is repeated after a crash."""
        patterns = self._catalyst.module("org.apache.spark.sql.catalyst.trees.TreePattern")
        if resolved.containsPattern(patterns.PLAN_EXPRESSION()):
            return "subqueries cannot be used here: there are no tables"
        if resolved.containsPattern(patterns.CURRENT_LIKE()):
            return "the current time differs when a batch is replayed; compare with observed_time instead"
        if resolved.deterministic():
            return None
        # The innermost one is the cause; the expressions around it are nondeterministic only because of it.
        *_, cause = (node for node in self._tree.walk(resolved) if not node.deterministic())
        name = str(cause.prettyName()).lower()
        if name in _RANDOM:
            return "random values differ when a batch is replayed; use a hash of event_id instead"
        return f"{name}() gives another value when a batch is replayed; use columns of the event instead"

    # --- literals ---------------------------------------------------------------------------------------------------

    def _literal_fault(self, resolved: Any) -> str | None:
        """A text that is compared with a column of another type to which it cannot be cast. The comparison is never
        true and gives no error, since a failed cast is null."""
        for node in self._tree.walk(resolved):
            fault = self._cast_fault(node) if self._tree.kind(node) == _CAST else self._comparison_fault(node)
            if fault is not None:
                return fault
        return None

    def _cast_fault(self, cast: Any) -> str | None:
        """The fault of a literal text that is cast to another type, by Spark or by the expression itself."""
        (inner,) = self._tree.children(cast)
        text = self._tree.text(inner)
        if text is None or cast.eval(None) is not None:
            return None
        return _no_such(text, str(cast.dataType().sql()))

    def _comparison_fault(self, node: Any) -> str | None:
        """The fault of literal texts for which Spark cast the column to text, as IN does."""
        if self._tree.kind(node) not in _COMPARED_AS_TEXTS:
            return None
        sides = [self._uncast(side) for side in self._tree.children(node)]
        columns = [inner for inner, is_cast in sides if is_cast and not inner.foldable()]
        kinds = [str(column.dataType().sql()) for column in columns]
        kinds = [kind for kind in kinds if kind.lower() in _KINDS]
        if not kinds:
            return None
        for inner, _ in sides:
            text = self._tree.text(inner)
            if text is not None and self._is_no(text, kinds[0]):
                return _no_such(text, kinds[0])
        return None

    def _uncast(self, node: Any) -> tuple[Any, bool]:
        """The operand of a cast and True; or the node itself and False."""
        is_cast = self._tree.kind(node) == _CAST
        return (self._tree.children(node)[0] if is_cast else node), is_cast

    def _is_no(self, text: str, kind: str) -> bool:
        literal = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        analysed = self._catalyst.project(self._catalyst.parse(f"CAST({literal} AS {kind})"), EVENT_COLUMNS)
        return analysed.expressions().head().child().eval(None) is None

    # --- Spark's messages --------------------------------------------------------------------------------------------

    def _sentence(self, error: Any, expression: Expression) -> str:
        """Spark's message in one line, with the nearest name we know."""
        # The analyser's catalogue has only built-in functions. Its message for an unknown function is about catalogues,
        # but the user needs the name of the function.
        name = self._unknown_function(expression.sql)
        if name is not None:
            return f"unknown function '{name}'" + _meant(name, self._catalyst.function_names())
        try:
            condition, parameters = str(error.getCondition()), dict(error.getMessageParameters())
        except Py4JError:  # not one of Spark's own exceptions
            if str(error.getClass().getSimpleName()) == "StackOverflowError":
                return _TOO_DEEP
            return f"Spark cannot read it: {_first_line(str(error.getMessage()))}"
        if condition.startswith("UNRESOLVED_COLUMN"):
            name = parameters["objectName"].replace("`", "")
            return f"unknown column '{name}'" + _meant(name, [column for column, _ in expression.columns])
        if condition == "FAILED_TO_PARSE_TOO_COMPLEX":
            return _TOO_DEEP
        if condition.startswith("UNSUPPORTED_GENERATOR"):
            return _ONE_RECORD
        whole, message = str(error.getMessage()), _said(error)
        if place := _place(whole):
            message = f"{message.rstrip('.')}{place}"
        return _variant_advice(condition, message, expression) or _with_plain_attributes(message)

    def _unknown_function(self, sql: str) -> str | None:
        known = {name.lower() for name in self._catalyst.function_names()}
        called = (name for name in _CALL.findall(_QUOTED.sub("''", sql)) if name.lower() not in known)
        return next((name for name in called if name.lower() not in _OPERATORS), None)


def _said(error: Any) -> str:
    """The first line of an exception's message, without Spark's name of the condition."""
    return _first_line(re.sub(r"^\s*\[[A-Z_.0-9]+\]\s*", "", str(error.getMessage())))


def _size_fault(sql: str) -> str | None:
    """Why an expression is too large for Spark; or None.

    >>> _size_fault("(" * 101 + "true" + ")" * 101)
    'has 101 brackets inside each other; at most 100 are allowed'
    """
    depth = deepest = count = 0
    for piece in _PIECE.findall(sql):
        count += 1
        depth += (piece in "([") - (piece in ")]") if len(piece) == 1 else 0
        deepest = max(deepest, depth)
    if deepest > _BRACKETS_MAX:
        return f"has {deepest:,} brackets inside each other; at most {_BRACKETS_MAX} are allowed"
    if count > _PIECES_MAX:
        return f"has {count:,} words and signs; at most {_PIECES_MAX:,} are allowed: write several conditions"
    return None


def _variant_advice(condition: str, message: str, expression: Expression) -> str | None:
    """What to write if an expression treats a field of the attributes as a column or as a typed value."""
    if '"VARIANT"' not in message or ("attributes", "variant") not in expression.columns:
        return None
    if condition.startswith("INVALID_EXTRACT"):
        what = "attributes is a variant: its fields are not columns"
    elif condition.startswith("DATATYPE_MISMATCH"):
        what = "a value of attributes has no type of its own"
    else:
        return None
    found = _FIELD.search(expression.sql)
    name = next((part for part in found.groups() if part), "NAME") if found else "NAME"
    return f"{what}; write {_plain_attribute(name)}"


def _with_plain_attributes(message: str) -> str:
    """Spark's message with attributes named as in the file, and with advice on the cast."""
    names = _READ_ATTRIBUTE.findall(message)
    if not names:
        return message
    plain = _READ_ATTRIBUTE.sub(lambda found: _plain_attribute(found[1]), message)
    first = _plain_attribute(names[0])
    return f"{plain.rstrip('.')}; an attribute is a text: compare it, or write CAST({first} AS ...)"


def _plain_attribute(name: str) -> str:
    return f"attributes.{name}" if re.fullmatch(r"\w+", name) else f"attributes['{name}']"


def _no_such(text: str, kind: str) -> str:
    what = _KINDS.get(kind.lower(), kind.lower())
    article = "" if what == "true or false" else "a "
    return f"'{text}' is not {article}{what}, so no comparison with it is ever true; compare with {article}{what}"


def _meant(name: str, known: Sequence[str]) -> str:
    found = nearest(name, known)
    return f" (did you mean '{found}'?)" if found else ""


def _pattern_of_time_fault(message: str) -> str | None:
    """A sentence for Spark's message about a time pattern; None for any other message.

    >>> _pattern_of_time_fault("[INVALID] Unrecognized datetime pattern: QQQQQ. Too many letters")
    "Spark does not know the 'QQQQQ' pattern of a time"
    >>> _pattern_of_time_fault("Week-based patterns are unsupported, detected week-based character: e.")
    "Spark does not know the 'e' pattern of a time: it stands for weeks"
    """
    if unknown := re.search(r"Fail to recognize ('.*') pattern|Unrecognized datetime pattern: (.*?)\. ", message):
        return f"Spark does not know the {unknown[1] or repr(unknown[2])} pattern of a time"
    if weeks := re.search(r"detected week-based character: (\w)", message):
        return f"Spark does not know the '{weeks[1]}' pattern of a time: it stands for weeks"
    return None


def _place(message: str) -> str:
    """The position at which Spark's parser failed, to be appended to the sentence.

    >>> _place("Syntax error at or near ')'. SQLSTATE: 42601 (line 2, pos 10)")
    ' (line 2 of the expression, character 11)'
    """
    found = re.search(r"SQLSTATE: \w+ \(line (\d+), pos (\d+)\)", message)
    return f" (line {found[1]} of the expression, character {int(found[2]) + 1})" if found else ""


def _first_line(message: str) -> str:
    """The first line of a message of Spark's; the statement and a stack trace follow it."""
    head = message.strip().split("\n")[0]
    return re.sub(r"\s*SQLSTATE: \w+.*$", "", head)
