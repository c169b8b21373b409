"""Makes py4j look up each class and static method only once.

Without this, each use of a class queries the JVM, and PySpark uses `functions` for each column. The JVM then tries
every imported package, searches all jars of Spark for each, and is queried for the method. That took a fourteenth of
the JVM's CPU time. Must not know what the classes are used for.
"""

from typing import Any

from py4j.java_gateway import JavaClass, JavaGateway, JavaMember, JavaPackage, JVMView
from py4j.protocol import DEFAULT_JVM_ID, DEFAULT_JVM_NAME


def remember_classes(gateway: JavaGateway) -> None:
    """Enable caching for a gateway, for its lifetime. Thread-safe."""
    gateway.jvm = _View(gateway._gateway_client, jvm_name=DEFAULT_JVM_NAME, id=DEFAULT_JVM_ID)  # noqa: SLF001


class _View(JVMView):  # type: ignore[misc]  # py4j has no types
    """Cached results are ordinary attributes: py4j does not query them again."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            return _kept(self, name, found)
        return _Package.of(self, name, found) if isinstance(found, JavaPackage) else found


class _Package(JavaPackage):  # type: ignore[misc]
    """A package is cached only after a class was found in it: py4j treats every unknown name as a package, and a later
    import may add a class with that name."""

    _holder: Any
    _name: str

    @classmethod
    def of(cls, holder: Any, name: str, package: JavaPackage) -> "_Package":
        """`holder`: the view or package that contains it as `name`."""
        made = cls.__new__(cls)
        made.__dict__.update(package.__dict__, _holder=holder, _name=name)
        return made

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            self.keep()
            return _kept(self, name, found)
        return _Package.of(self, name, found) if isinstance(found, JavaPackage) else found

    def keep(self) -> None:
        """With all enclosing packages."""
        self._holder.__dict__[self._name] = self
        if isinstance(self._holder, _Package):
            self._holder.keep()


class _Class(JavaClass):  # type: ignore[misc]
    """Static methods are cached; static fields are not, because they may change."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            self.__dict__[name] = found
        return found


def _kept(holder: Any, name: str, found: JavaClass) -> _Class:
    known = _Class.__new__(_Class)
    known.__dict__.update(found.__dict__)
    holder.__dict__[name] = known
    return known
