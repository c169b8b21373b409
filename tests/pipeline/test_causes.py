"""The cause of a failure in one sentence, out of texts that Spark 4.2 really said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from logboom.pipeline.errors import PipelineError
from logboom.pipeline.spark.causes import cause_of, is_out_of_memory

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/app/stages.py", line 11, in f
    pc.match_substring_regex(pa.array(["a"]), "(")
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status
"""
CALLBACK = """[STREAM_FAILED] Query [id = 88f4-5c95, runId = cf20-0b99] terminated with exception: \
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. \
Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/lib/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
pyspark.errors.exceptions.captured.PythonException: {worker}
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 88f4-5c95, runId = cf20-0b99]
Current Committed Offsets: {{}}
"""
CRASHED = """An error occurred while calling o164.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 3.0 (TID 3) (localhost executor driver): org.apache.spark.SparkException: \
Python worker exited unexpectedly (crashed):

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:711)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""
STOPPED = """An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
This stopped SparkContext was created at:

org.apache.spark.api.java.JavaSparkContext.<init>(JavaSparkContext.scala:59)
\tat org.apache.spark.SparkContext.assertNotStopped(SparkContext.scala:1)
Caused by: java.net.ConnectException: Connection refused: /127.0.0.1:1
\tat sun.nio.ch.Net.pollConnect(Native Method)
"""


LOST = """[STREAM_FAILED] Query [id = 88f4-5c95, runId = cf20-0b99] terminated with exception: Some data \
may have been lost because they are not available in Kafka any more; either the
data was aged out by Kafka or the topic may have been deleted before all the data in the
topic was processed.
If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.
Reason: Partitions HashSet(web-1) have been deleted.
=== Streaming Query ===
Identifier: [id = 88f4-5c95, runId = cf20-0b99]
"""


def test_lost_records_are_told_with_the_key_of_a_pipelines_file() -> None:
    assert cause_of(StreamingQueryException(LOST)) == (
        "records are gone that were not read yet, without which a source with `on_data_loss: continue` goes on: "
        "Partitions HashSet(web-1) have been deleted."
    )


@pytest.mark.parametrize(
    ("raised", "cause"),
    [
        ("pyarrow.lib.ArrowInvalid: Invalid regular expression: missing ): (", None),
        ("KeyError", "KeyError"),
        ("ValueError: a\nmulti line: message\n  with more", "ValueError: a multi line: message with more"),
        ("logboom.pipeline.errors.PipelineError: the log refuses the stream a", "the log refuses the stream a"),
        ("UnicodeError: \n\n  told later", "UnicodeError: told later"),
    ],
)
def test_a_python_workers_exception_is_told_with_its_message(raised: str, cause: str | None) -> None:
    wanted = cause or "ArrowInvalid: Invalid regular expression: missing ): ("
    assert cause_of(PySparkException(WORKER + raised)) == wanted
    assert cause_of(StreamingQueryException(CALLBACK.format(worker=WORKER + raised))) == wanted


def test_a_worker_that_died_and_a_java_cause() -> None:
    assert cause_of(Py4JError(CRASHED)) == "Python worker exited unexpectedly (crashed)"
    assert cause_of(Py4JError(STOPPED)) == "ConnectException: Connection refused: /127.0.0.1:1"


def test_errors_of_this_process_are_told_as_they_are() -> None:
    assert cause_of(PipelineError("the stream a does not exist any more")) == "the stream a does not exist any more"
    assert cause_of(OSError(28, "No space left on device", "/archive")) == (
        "OSError: [Errno 28] No space left on device: '/archive'"
    )
    assert cause_of(KeyError()) == "KeyError"


@given(st.text(min_size=1, max_size=300).filter(lambda text: text.strip(": \n\t") != ""))
def test_a_message_of_any_text_is_one_line_and_keeps_its_beginning(message: str) -> None:
    told = cause_of(PySparkException(f"{WORKER}RuntimeError: x {message}"))
    assert "\n" not in told
    assert told.startswith("RuntimeError: x")
    assert len(told) <= 500


EXECUTOR_LOST = """[STREAM_FAILED] Query [id = 88f4-5c95, runId = cf20-0b99] terminated with exception: \
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. \
Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/lib/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
py4j.protocol.Py4JJavaError: An error occurred while calling o405.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 5.0 failed 4 times, most recent \
failure: Lost task 1.3 in stage 5.0 (TID 14) (127.0.0.1 executor 2): ExecutorLostFailure (executor 2 exited caused by \
one of the running tasks) Reason: Command exited with code {code}
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2822)
"""


@pytest.mark.parametrize(("code", "is_memory"), [(52, True), (137, True), (1, False), (5212, False)])
def test_an_executor_that_ended_for_its_memory_is_told_from_others(code: int, is_memory: bool) -> None:
    error = StreamingQueryException(EXECUTOR_LOST.format(code=code))
    told = cause_of(error)
    lost = "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Command exited with code"
    assert told.startswith(f"{lost} {code}")
    assert ("spark.executor.memory" in told) == is_memory == is_out_of_memory(error)
