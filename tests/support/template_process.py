"""The process that `tests.support.commands` forks commands off: it has loaded `logboom`, and waits for requests.

Commands that run as they are installed (the README's page, tests/app/test_node.py) are interpreters of their own.
"""

import gc
import signal
import sys
from typing import Any

from tests.support.fork_server import leave, wait_for_request

from logboom.base.without_packages import UNUSED_ANYWHERE, without_packages
from logboom.cli import main as cli

_COMMANDS = (
    "serve",
    "cluster",
    "streams",
    "tables",
    "publish",
    "tail",
    "services",
    "groups",
    "quotas",
    "collect",
    "pipeline",
    "log",
    "sim",
    "config",
    "bench",
)

_REQUESTS = {
    "api_versions": 3,
    "metadata": 13,
    "produce": 10,
    "fetch": 16,
    "list_offsets": 7,
    "find_coordinator": 2,
    "offset_commit": 9,
    "offset_fetch": 9,
    "create_topics": 4,
    "init_producer_id": 4,
    "describe_configs": 1,
}
"""The versions that librdkafka sends: with others, a broker loads what it needs itself."""


def _load() -> None:
    for name in _COMMANDS:
        cli._load(name)
    with without_packages(*UNUSED_ANYWHERE):
        _load_requests()
    _freeze()


def _load_requests() -> None:
    """What a broker loads when its first requests come takes it as long as its start."""
    from logboom.kafka.apis import load_handlers
    from logboom.kafka.wire.messages import response_class
    from logboom.kafka.wire.reading import reader_for
    from logboom.kafka.wire.writing import writer_for

    for api_key, handler in load_handlers().items():
        version = _REQUESTS.get(handler.handle.__module__.rpartition(".")[2])
        if version is not None:
            reader_for(api_key, version)
            writer_for(response_class(api_key, version))
            response_class(api_key, handler.max_version)  # in which `make` looks for fields that the version lacks


def _load_pipelines() -> None:
    """What the commands of pipelines load first, which only those who run one pay. Not PySpark and pandas, which most
    do without: py4j converts in other ways where PySpark is loaded."""
    if "logboom.pipeline.config.sqlcheck" in sys.modules:
        return
    from logboom.pipeline.config import sqlcheck  # noqa: F401
    from logboom.pipeline.execute import examples  # noqa: F401
    from logboom.pipeline.parse.formats.registry import format_types
    from logboom.pipeline.sinks.registry import sink_types
    from logboom.pipeline.transforms.registry import transform_types

    format_types()
    sink_types()
    transform_types()
    _freeze()


def _freeze() -> None:
    """A collection of garbage in a forked process would copy every page of what was loaded."""
    gc.collect()
    gc.freeze()


def _prepare(request: dict[str, Any]) -> None:
    """Before it forks, which is where what is loaded serves the commands behind this one, too."""
    if request["arguments"][:1] == ["pipeline"]:
        _load_pipelines()


def _run() -> int:
    """Runs the command; its exit code, as `sys.exit` takes it."""
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the tests is theirs; their end ends this process too
    _load()
    if (request := wait_for_request(int(sys.argv[1]), _prepare)) is not None:
        sys.argv = ["logboom", *request["arguments"]]
        leave(_run())
