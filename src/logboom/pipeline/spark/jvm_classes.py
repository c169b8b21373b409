"""Classes and Scala objects of one JVM by name, each looked up once.

py4j queries the JVM for every part of a dotted name, and the JVM searches all jars of Spark for a class `org`, one
`org.apache` and so on before it is treated as a package: half a millisecond for `scala.jdk.javaapi`. So this queries
whole names and caches the results. Must not know what the classes are used for.
"""

from collections.abc import Sequence
from typing import Any, Final

from py4j.java_gateway import JavaObject

_CONVERTERS: Final = "scala.jdk.javaapi.CollectionConverters"


class JvmClasses:
    """Cache for one JVM, with the lifetime of its gateway. Thread-safe."""

    def __init__(self, jvm: Any) -> None:
        """`jvm`: py4j's view of it."""
        self._jvm = jvm
        self._found: dict[str, Any] = {}
        self._modules: dict[str, Any] = {}
        self._statics: dict[tuple[str, str], Any] = {}
        self._empty: Any = None

    def named(self, name: str) -> Any:
        """A class by its full name, to make objects of; Py4JError if there is none."""
        if name not in self._found:
            self._found[name] = getattr(self._jvm, name)
        return self._found[name]

    def static(self, of: str, name: str) -> Any:
        """A static method of a class, or the value of a static field."""
        if (of, name) not in self._statics:
            self._statics[of, name] = getattr(self.named(of), name)
        return self._statics[of, name]

    def java_class(self, name: str) -> Any:
        """The `java.lang.Class` of a name, also of jars that only Spark's own loader knows."""
        loader = self.static("java.lang.Thread", "currentThread")().getContextClassLoader()
        return self.static("java.lang.Class", "forName")(name, True, loader)

    def module(self, name: str) -> Any:
        """A Scala object."""
        if name not in self._modules:
            self._modules[name] = self.java_class(f"{name}$").getField("MODULE$").get(None)
        return self._modules[name]

    def kept_ids(self) -> frozenset[str]:
        """py4j's ids of cached objects, which must not be released."""
        kept = (*self._modules.values(), *self._statics.values(), self._empty)
        return frozenset(each._target_id for each in kept if isinstance(each, JavaObject))  # noqa: SLF001

    def seq(self, items: Sequence[Any]) -> Any:
        """A Scala sequence, which does not change."""
        if items:
            return self._as_seq(items)
        if self._empty is None:
            self._empty = self._as_seq([])
        return self._empty

    def listed(self, seq: Any) -> list[Any]:
        """The members of a Scala sequence."""
        return list(self.java_list(seq))

    def java_list(self, seq: Any) -> Any:
        """A Scala sequence as a list of Java's."""
        return self.static(_CONVERTERS, "asJava")(seq)

    def _as_seq(self, items: Sequence[Any]) -> Any:
        return self.static(_CONVERTERS, "asScala")(list(items)).toSeq()
