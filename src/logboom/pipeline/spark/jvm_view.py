"""py4j's view of a JVM, which asks for each class and static method once.

By py4j's own way, each mention of a class asks the JVM, and PySpark mentions `functions` for each column. The JVM tries
every package that was imported, and for each it looks through all jars of Spark; then it is asked for the method. That
was a fourteenth of its CPU time. Must not know what the classes are for.
"""

from typing import Any

from py4j.java_gateway import JavaClass, JavaGateway, JavaMember, JavaPackage, JVMView
from py4j.protocol import DEFAULT_JVM_ID, DEFAULT_JVM_NAME


def remember_classes(gateway: JavaGateway) -> None:
    """From now on. Life: that of the gateway; any thread may ask."""
    gateway.jvm = _View(gateway._gateway_client, jvm_name=DEFAULT_JVM_NAME, id=DEFAULT_JVM_ID)  # noqa: SLF001


class _View(JVMView):  # type: ignore[misc]  # py4j has no types
    """What is kept is an attribute like any other: py4j is not asked for it again."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            return _kept(self, name, found)
        return _Package.of(self, name, found) if isinstance(found, JavaPackage) else found


class _Package(JavaPackage):  # type: ignore[misc]
    """It is kept once a class was found in it: py4j takes for a package whatever is not there yet, and a later import
    may bring a class of that name."""

    _holder: Any
    _name: str

    @classmethod
    def of(cls, holder: Any, name: str, package: JavaPackage) -> "_Package":
        """`holder`: the view or package in which it is `name`."""
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
        """With all packages around it."""
        self._holder.__dict__[self._name] = self
        if isinstance(self._holder, _Package):
            self._holder.keep()


class _Class(JavaClass):  # type: ignore[misc]
    """Its static methods are kept; its fields may change."""

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
