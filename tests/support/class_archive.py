"""Has JVMs of Spark write the archives of their classes, where there are none, for those that the tests start.

    python -m tests.support.class_archive

A JVM with the archive (`logboom.pipeline.spark.jvm_archive`) takes half of the CPU time until its first queries have
run, and the tests start some twenty. Left to them, that of a session would never come to be: their routers are killed,
or the JVMs are; and that of a bare JVM, which judges conditions, would be written by each of those that end before the
first has written it. They are written as users' machines write them, the one when a condition was checked, the other
at the end of a run, and the next JVM takes them up. They are not needed: where a run is not possible, or the writing
takes long, the tests go on without.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

from tests.pipeline.support import Said, make_stream, publish
from tests.support.jvm_options import JVM_OPTIONS
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.config.sqlcheck import check_expressions
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, Expression
from logboom.pipeline.run.runner import Runner, RunOptions
from logboom.pipeline.spark.session import start_jvm
from logboom.pipeline.spark.settings import SessionOptions

_PIPELINE: Final = """
name: classes
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split: {type: route, inputs: [parsed], routes: {errors: "severity_number >= 17 AND body RLIKE 'a'"}}
sinks:
  archive: {type: parquet, inputs: [parsed], path: ./archive}
  errors: {type: stream, inputs: [split.errors], stream: errors}
"""


def write() -> None:
    """Returns once they are written; what is there stays."""
    condition = Expression(sql="length(upper(body)) > 1", columns=EVENT_COLUMNS, line=1, where="classes")
    check_expressions([condition])
    options = SessionOptions(master="local[2]")
    jvm = start_jvm(options, write_archive=True)
    has_worked = False
    try:
        if jvm.archive is not None and jvm.archive.is_written:
            with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "data") as broker:
                _run(Path(directory), broker, RunOptions(bootstrap=broker.kafka, once=True, session=options, jvm=jvm))
            has_worked = True
    finally:
        jvm.close(has_worked=has_worked)
    jvm.jvm._process.wait(WAIT_S)


def _run(directory: Path, broker: BrokerProcess, options: RunOptions) -> None:
    make_stream(broker.kafka, "web", 2)
    publish(broker.kafka, "web", [b'{"level": "error", "msg": "a"}', b'{"cut": '], 2)
    file = directory / "classes.yaml"
    file.write_text(_PIPELINE)
    Runner(compile_pipeline(_PIPELINE, str(file)), options, Said()).run()


if __name__ == "__main__":
    os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)
    write()
