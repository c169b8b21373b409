"""What was found in a JVM is not asked for again: a lookup is a search of all of Spark's jars."""

from types import SimpleNamespace
from typing import Any

from logboom.pipeline.spark.jvm_classes import JvmClasses
from logboom.pipeline.sql.tree import Tree


class View:
    """py4j's view of a JVM that has every class, each with every method, and knows what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return Class(self.asked, name)


class Class:
    def __init__(self, asked: list[str], name: str) -> None:
        self._asked, self._name = asked, name

    def __getattr__(self, name: str) -> Any:
        self._asked.append(f"{self._name}#{name}")
        return lambda *arguments: Answer(arguments)


class Answer:
    """Whatever is asked of it, it gives itself."""

    def __init__(self, arguments: tuple[Any, ...] = ()) -> None:
        self.arguments = arguments

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self


def test_names_are_asked_for_as_a_whole_and_once() -> None:
    view = View()
    classes = JvmClasses(view)
    for _ in range(3):
        classes.named("org.apache.spark.SparkConf")
        classes.static("java.util.regex.Pattern", "compile")("a")
        classes.module("scala.None")
        classes.seq([])
        classes.seq([1, 2])
    assert sorted(view.asked) == [
        "java.lang.Class",
        "java.lang.Class#forName",
        "java.lang.Thread",
        "java.lang.Thread#currentThread",
        "java.util.regex.Pattern",
        "java.util.regex.Pattern#compile",
        "org.apache.spark.SparkConf",
        "scala.jdk.javaapi.CollectionConverters",
        "scala.jdk.javaapi.CollectionConverters#asScala",
    ]


def test_a_node_is_asked_for_its_children_once() -> None:
    asked = []

    def children() -> Any:
        asked.append(1)
        return SimpleNamespace(size=lambda: 2, apply=lambda index: f"child {index}")

    node = SimpleNamespace(_target_id="o1", children=children)
    tree = Tree(JvmClasses(View()))
    assert [tree.children(node) for _ in range(3)] == [["child 0", "child 1"]] * 3
    assert len(asked) == 1
