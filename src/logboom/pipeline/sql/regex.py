r"""Regular expressions of conditions on RE2/J instead of `java.util.regex`.

Java's regular expressions backtrack: `'^(a|b)*$'` ends the JVM with a stack overflow on a line of 60,000 characters,
and `'^(.*a){20}$'` takes years on forty. RE2/J (https://github.com/google/re2j) takes time proportional to the text. It
is part of the Hadoop client in Spark's distribution, and its `Pattern` can be a constant of a Catalyst expression. So
the expressions made here are compiled into the same Java code as the rest of the condition, inside the same guard.

The syntax is that of RE2, as everywhere in a pipeline's file: no look-around, no back-references, and `$` is the very
end of the text. LIKE has the same meaning as in Spark; its simplest forms are left to Spark, which searches for plain
texts.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from logboom.pipeline.parse.grok import PatternError, check_search
from logboom.pipeline.sql.tree import Tree

_RE2J: Final = "org.apache.hadoop.shaded.com.google.re2j"
_RE2J_PATTERN: Final = f"{_RE2J}.Pattern"
_SIMPLE_LIKE: Final = re.compile(r"%?[^%_\\]*%?|[^%_\\]+%[^%_\\]+")
"""LIKE patterns that Spark implements with startsWith, endsWith, contains and =."""
_LIKE_SPECIAL: Final = frozenset("%_")
_ESCAPE_DEFAULT: Final = "\\"
_LINEAR_SPLIT: Final = re.compile(
    r"(?:[^\\^$.|?*+()\[\]{}]|\\[\\^$.|?*+()\[\]{}/-])*"  # a plain text
    r"|(?:[^\\^$.|?*+()\[\]{}]|\\[\\^$.|?*+()\[\]{}sSdDwWtn/-]|\[\^?(?:[^\[\]\\^&-]|\\[sdwtn\\-])+\])\+?"
)
"""A plain text, or one character or character class, perhaps repeated: such patterns need no backtracking."""


def regex_fault(tree: Tree, name: str, node: Any, children: list[Any]) -> str | None:
    """Why a call of one of REGEX_FUNCTIONS cannot be evaluated in bounded time; None if it can."""
    if name in ("like", "ilike"):
        return _like_fault(tree, node, children)
    pattern = tree.text(children[1]) if len(children) > 1 else ""
    if pattern is None:
        return "its pattern should be a constant text"
    if name == "split":
        fits = _LINEAR_SPLIT.fullmatch(pattern)
        return None if fits else "can only split at a plain text or at one character class; use regexp_extract"
    try:
        check_search(pattern)
        groups = tree.static(_RE2J_PATTERN, "compile")(pattern).groupCount()
    except PatternError as error:
        return f"the pattern {error}"
    except Py4JJavaError as error:
        return f"the pattern is not an RE2 expression: {_reason(error)}"
    return _argument_fault(tree, name, children, groups)


def _argument_fault(tree: Tree, name: str, children: list[Any], groups: int) -> str | None:
    if name == "regexp_extract" and len(children) > 2:
        group = tree.whole_number(children[2])
        if group is None or not 0 <= group <= groups:
            return f"the pattern has {groups} groups; the third argument names one of them, or 0 for the whole match"
    if name == "regexp_extract" and len(children) == 2 and groups == 0:
        return "the pattern has no group; give 0 as third argument for the whole match"
    if name == "regexp_replace":
        replacement = tree.text(children[2]) if len(children) == 3 else None
        if replacement is None:
            return "takes a text, a pattern and a constant replacement"
        if any(int(number) > groups for number in re.findall(r"(?<!\\)\$([0-9]+)", replacement)):
            return f"the pattern has {groups} groups, and the replacement refers to another one"
    return None


def _reason(error: Py4JJavaError) -> str:
    described = re.search(r"PatternSyntaxException: (.*)", str(error))
    return described[1] if described is not None else str(error.java_exception)


class OnRe2:
    """Replaces the use of `java.util.regex` in parsed expressions that `review` has accepted."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._templates: dict[str, Any] = {}

    def rewrite(self, node: Any) -> Any:
        """The equivalent expression on RE2/J."""
        tree = self._tree
        before = tree.children(node)
        children = [self.rewrite(child) for child in before]
        name = tree.function(node)
        make = _MAKERS.get(name or "")
        made = None if make is None else make(self, node, children)
        if made is not None:
            return made
        changed = any(child is not old for child, old in zip(children, before, strict=True))
        return tree.with_children(node, children) if changed else node

    # --- what the functions become -------------------------------------------------------------------------------

    def rlike(self, node: Any, children: list[Any]) -> Any:
        return self._find(children[0], self._text(children[1]))

    def like(self, node: Any, children: list[Any]) -> Any:
        """LIKE, ILIKE, LIKE ALL and LIKE ANY with their negations, whose patterns are not children of the node."""
        kind = self._tree.kind(node)
        if kind in _SEVERAL_LIKES:
            return self._several_likes(kind, node, children[0])
        pattern, escape = self._text(children[1]), _escape_of(self._tree, node, children)
        if self._tree.function(node) == "ilike":
            subject = self._call("lower(x)", children[0])
            return self._like(subject, _lower(children[1]), escape)
        return None if _SIMPLE_LIKE.fullmatch(pattern) else self._like(children[0], pattern, escape)

    def _several_likes(self, kind: str, node: Any, subject: Any) -> Any:
        patterns = node.patterns()
        texts = [str(patterns.apply(index).toString()) for index in range(patterns.size())]
        negated, join = _SEVERAL_LIKES[kind]
        found = [self._like(subject, text, _ESCAPE_DEFAULT) for text in texts]
        found = [self._tree.new("Not", each) if negated else each for each in found]
        whole = found[0]
        for each in found[1:]:
            whole = self._tree.new(join, whole, each)
        return whole

    def _like(self, subject: Any, pattern: str, escape: str) -> Any:
        return self._find(subject, like_expression(pattern, escape))

    def extract(self, node: Any, children: list[Any]) -> Any:
        group = self._tree.whole_number(children[2]) if len(children) > 2 else 1
        # Without a match the result is an empty text; without a text it is null.
        empty = self._call("left(x, 0)", self._call("string(x)", children[0]))
        return self._call("if(x, x, x)", *self._extracted(children, group or 0), empty)

    def substring(self, node: Any, children: list[Any]) -> Any:
        return self._call("if(x, x, NULL)", *self._extracted(children, 0))

    def _extracted(self, children: list[Any], group: int) -> tuple[Any, Any]:
        """Whether the pattern matches, and the text of a group of the first match.

        A matcher is created again for each expression, so the group is obtained by replacing the whole text by it.
        """
        pattern = self._text(children[1])
        whole = rf"\A(?s:.*?)({pattern})(?s:.*)\z"
        replaced = self._invoke(self._matcher(children[0], whole), "replaceFirst", _STRING, [f"${group + 1}"])
        return self._find(children[0], pattern), self._spark_text(replaced)

    def replace(self, node: Any, children: list[Any]) -> Any:
        matcher = self._matcher(children[0], self._text(children[1]))
        return self._spark_text(self._invoke(matcher, "replaceAll", _STRING, [self._text(children[2])]))

    # --- pieces --------------------------------------------------------------------------------------------------

    def _text(self, node: Any) -> str:
        text = self._tree.text(node)
        assert text is not None, "reviewed expressions have constant patterns"
        return text

    def _call(self, template: str, *arguments: Any) -> Any:
        """SQL in which each `x` is replaced by an expression, from left to right."""
        if template not in self._templates:
            self._templates[template] = self._tree.parse(template)
        found = self._templates[template]
        given = iter(arguments)
        children = self._tree.children(found)
        return self._tree.with_children(
            found, [next(given) if self._tree.kind(child) == "UnresolvedAttribute" else child for child in children]
        )

    def _find(self, subject: Any, pattern: str) -> Any:
        return self._invoke(self._matcher(subject, pattern), "find", self._tree.plain_type("BooleanType"), [])

    def _matcher(self, subject: Any, pattern: str) -> Any:
        compiled = self._constant(self._compiled(pattern), _RE2J_PATTERN)
        text = self._invoke(self._call("string(x)", subject), "toString", _STRING, [])
        return self._invoke(compiled, "matcher", f"{_RE2J}.Matcher", [text])

    def _compiled(self, pattern: str) -> Any:
        """A pattern that has the same meaning after it was serialised for a task.

        RE2/J 1.1 compiles a deserialised pattern with the flags of `Pattern.compile(text, flags)` instead of RE2's own,
        which makes it a POSIX pattern: no `(?i)`, `\\d` or `.*?`. So RE2's flags are set explicitly here.
        """
        found = self._tree.static(_RE2J_PATTERN, "compile")(pattern)
        flags = self._tree.java_class(_RE2J_PATTERN).getDeclaredField("flags")
        flags.setAccessible(True)
        flags.setInt(found, _RE2_PERL)
        return found

    def _constant(self, value: Any, java_class: str) -> Any:
        return self._tree.new("Literal", value, self._tree.object_type(java_class))

    def _invoke(self, target: Any, method: str, gives: Any, arguments: list[Any]) -> Any:
        """A call of a Java object's method; null if the object or an argument is null."""
        tree = self._tree
        data_type = tree.object_type(gives) if isinstance(gives, str) else gives
        given = [self._constant(text, _STRING) if isinstance(text, str) else text for text in arguments]
        none = tree.seq([])
        return tree.new("objects.Invoke", target, method, data_type, tree.seq(given), none, True, True, True)

    def _spark_text(self, node: Any) -> Any:
        """Convert a Java string to Spark's own type."""
        tree = self._tree
        owner, given = tree.java_class("org.apache.spark.unsafe.types.UTF8String"), tree.seq([node])
        none = tree.module("scala.None")
        return tree.new(
            "objects.StaticInvoke",
            owner,
            tree.plain_type("StringType"),
            "fromString",
            given,
            tree.seq([]),
            True,
            True,
            True,
            none,
        )


_STRING: Final = "java.lang.String"
_RE2_PERL: Final = 4 | 16 | 64 | 128
"""RE2.PERL: the flags CLASS_NL, ONE_LINE, PERL_X and UNICODE_GROUPS, which `Pattern.compile(text)` uses."""
_SEVERAL_LIKES: Final = {
    "LikeAll": (False, "And"),
    "LikeAny": (False, "Or"),
    "NotLikeAll": (True, "And"),
    "NotLikeAny": (True, "Or"),
}
_MAKERS: Final[Mapping[str, Callable[[OnRe2, Any, list[Any]], Any]]] = {
    "rlike": OnRe2.rlike,
    "regexp": OnRe2.rlike,
    "regexp_like": OnRe2.rlike,
    "regexp_extract": OnRe2.extract,
    "regexp_substr": OnRe2.substring,
    "regexp_replace": OnRe2.replace,
    "like": OnRe2.like,
    "ilike": OnRe2.like,
}
REGEX_FUNCTIONS: Final = frozenset((*_MAKERS, "split"))
"""Functions whose arguments `regex_fault` checks."""


def like_expression(pattern: str, escape: str) -> str:
    r"""The RE2 expression for a LIKE pattern. ValueError if an ordinary character is escaped.

    >>> like_expression(r"a.%\_", "\\")
    '(?s)\\Aa\\..*_\\z'
    """
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or (escaped not in _LIKE_SPECIAL and escaped != escape):
                raise ValueError(f"the escape character {escape!r} stands before '%', '_' or itself alone")
            parts.append(_quoted(escaped))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or _quoted(character))
    return rf"(?s)\A{''.join(parts)}\z"


def _quoted(character: str) -> str:
    """Escape a character. Only ASCII punctuation has a special meaning."""
    return (
        f"\\{character}"
        if character.isascii() and not character.isalnum() and character not in "_ \t\r\n"
        else character
    )


def _like_fault(tree: Tree, node: Any, children: list[Any]) -> str | None:
    if tree.kind(node) in _SEVERAL_LIKES:
        patterns = node.patterns()
        texts: list[str | None] = [str(patterns.apply(index).toString()) for index in range(patterns.size())]
    else:
        texts = [tree.text(child) for child in children[1:2]]
    for text in texts:
        if text is None:
            return "its pattern should be a constant text"
        try:
            check_search(like_expression(text, _escape_of(tree, node, children)))
        except ValueError as error:  # PatternError is a ValueError
            return f"the pattern {error}"
    return None


def _escape_of(tree: Tree, node: Any, children: list[Any]) -> str:
    """The escape character of a LIKE: an attribute of the operator, or the third argument of the function."""
    if tree.kind(node) in ("Like", "ILike"):
        return str(node.escapeChar())
    given = tree.text(children[2]) if len(children) > 2 else None
    return given[0] if given else _ESCAPE_DEFAULT


def _lower(literal: Any) -> str:
    """Lower case in the same way as Spark."""
    return str(literal.value().toLowerCase().toString())
