"""A class of Spark's JVM is asked for once, by PySpark too; what is not there may come with an import."""

from types import SimpleNamespace

from logboom.pipeline.spark.py4j_cache import remember_classes

_METHOD, _FIELD = "!ym", "!yi5"


class Client:
    """The JVM's side: it has a few classes, `functions` among those that were imported, and knows what it was asked."""

    def __init__(self) -> None:
        self.classes = {"functions": "org.apache.spark.sql.functions", "py4j.reflection.TypeUtil": ""}
        self.asked: list[str] = []
        self.gateway_property = SimpleNamespace(pool=None)
        self.converters: list[object] = []

    def send_command(self, command: str) -> str:
        _, kind, *parts = command.split("\n")
        if kind == "m":
            self.asked.append("#".join(parts[:2]))
            return _FIELD[1:] if parts[1] == "MODULE$" else _METHOD[1:]
        self.asked.append(parts[0])
        return f"yc{self.classes[parts[0]] or parts[0]}" if parts[0] in self.classes else "yp"


def test_classes_packages_with_classes_and_static_methods_are_asked_for_once() -> None:
    client = Client()
    gateway = SimpleNamespace(_gateway_client=client, jvm=None)
    remember_classes(gateway)
    for _ in range(3):
        assert gateway.jvm.functions.col.command_header == "z:org.apache.spark.sql.functions\ncol\n"
        assert gateway.jvm.py4j.reflection.TypeUtil.isInstanceOf.name == "isInstanceOf"
        assert getattr(gateway.jvm, "py4j.reflection.TypeUtil").isInstanceOf.name == "isInstanceOf"
    assert client.asked == [
        "functions",
        "org.apache.spark.sql.functions#col",
        "py4j",
        "py4j.reflection",
        "py4j.reflection.TypeUtil",
        "py4j.reflection.TypeUtil#isInstanceOf",
        "py4j.reflection.TypeUtil",
        "py4j.reflection.TypeUtil#isInstanceOf",
    ]


def test_fields_are_read_each_time_and_a_name_may_become_a_class() -> None:
    client = Client()
    gateway = SimpleNamespace(_gateway_client=client, jvm=None)
    remember_classes(gateway)
    assert [getattr(gateway.jvm.functions, "MODULE$") for _ in range(2)] == [5, 5]
    assert gateway.jvm.Trigger.Once._fqn == "Trigger.Once"
    client.classes["Trigger"] = "org.apache.spark.sql.streaming.Trigger"
    assert gateway.jvm.Trigger._fqn == "org.apache.spark.sql.streaming.Trigger"
    assert client.asked.count("org.apache.spark.sql.functions#MODULE$") == 2
