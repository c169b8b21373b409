"""Reduces the pages of a Spark failure to its cause in one sentence.

Knows the format of Spark's, py4j's and Python's error texts. Must not know what failed.

A Python worker's exception reaches the driver as the text of a traceback inside the message of a Java exception, which
may stand inside the traceback of a foreachBatch callback inside another Java exception. What the user needs is the
innermost one: the exception behind the last frame of the last traceback, or else the last `Caused by` that says more
than a class name.
"""

import re
from typing import Final

_LONGEST: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):"
_BEHIND_THE_MESSAGE: Final = re.compile(
    r"\n\tat |\n *SQLSTATE: | SQLSTATE: \w{5}\b|\n=== Streaming Query ===|\n\nJVM stacktrace:|\nDriver stacktrace:"
)
_EXCEPTION: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)(?:: (?P<message>.*))?$", re.DOTALL)
_CAUSED_BY: Final = re.compile(r"^Caused by: (?:[\w$]+\.)*(?P<name>[\w$]+): (?P<message>\S.*)$", re.MULTILINE)
_PREFIXES: Final = (
    re.compile(r"^An error occurred while calling [^\n]*?\n: "),
    re.compile(r"^\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: "),
    re.compile(r"^(?:[\w$]+\.)+(?P<name>[\w$]+): "),
    re.compile(r"^Job aborted due to stage failure: .*?\(TID \d+\) \([^)]*\): ", re.DOTALL),
)
_DATA_LOSS: Final = re.compile(r"^Some data may have been lost because .*\sReason: ", re.DOTALL)
_DATA_LOSS_HERE: Final = (
    "records are gone that were not read yet, without which a source with `on_data_loss: continue` goes on: "
)
"""A sentence of Spark's connector that mentions an option which has another name in a pipeline's file."""
_OWN_ERRORS: Final = "logboom."
_OUT_OF_MEMORY: Final = re.compile(
    r"\b(?:OutOfMemory(?:Error|Exception)|OversizedAllocationException)\b"
    r"|\bExecutorLostFailure\b.{0,500}?\b(?:code|status)\W{1,2}(?:52|137)\b|\bOOMKilled\b",
    re.DOTALL,
)
"""On a cluster an executor ends with code 52 if its heap is full (`SparkExitCode.OOM`), and with 137 if the kernel or
the cluster manager kills it for its memory use."""
_FROM_JAVA: Final = "Py4JJavaError: "
_MORE_MEMORY: Final = (
    "; Spark's JVM has too little memory for the batch: --spark spark.driver.memory=8g gives it more, on a cluster "
    "spark.executor.memory"
)


def cause_of(error: BaseException) -> str:
    """A failure in one line for the user, without class names of this project. Never empty."""
    cause = _cause_of(error)
    return f"{cause.rstrip('.')}{_MORE_MEMORY}" if is_out_of_memory(error) else cause


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the text says that a Spark JVM had too little memory: the driver's, if it still runs, or an
    executor's."""
    return _OUT_OF_MEMORY.search(str(error)) is not None


def _cause_of(error: BaseException) -> str:
    text = str(error).strip()
    if _TRACEBACK in text:
        last = _last_exception(text)
        from_java = last.startswith(_FROM_JAVA)
        return _shortened(_java_cause(last.removeprefix(_FROM_JAVA)) if from_java else last)
    if type(error).__module__.startswith(_OWN_ERRORS):
        return _shortened(text)
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return _shortened(_java_cause(text))
    return _shortened(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _last_exception(text: str) -> str:
    """The exception at the end of the last traceback; its message may have several lines."""
    behind = text.rpartition(_TRACEBACK)[2]
    behind = _BEHIND_THE_MESSAGE.split(behind, maxsplit=1)[0]
    lines = behind.strip("\n").split("\n")
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    # Lines of a message may be indented, too: the exception begins at the first line after a frame that is not.
    first = next((number for number, line in enumerate(lines) if line and not line.startswith(" ")), None)
    if first is None:
        return lines[frames[-1]].strip() if frames else text
    return _without_own_name("\n".join(lines[first:]))


def _without_own_name(exception: str) -> str:
    """`package.Name: message` without the package; only the message for an error of this project."""
    found = _EXCEPTION.match(exception.strip())
    if found is None:
        return exception
    message = (found["message"] or "").strip()
    if message and exception.startswith(_OWN_ERRORS):
        return message
    return f"{found['name']}: {message}" if message else str(found["name"])


def _java_cause(text: str) -> str:
    causes = list(_CAUSED_BY.finditer(text))
    if causes:
        return f"{causes[-1]['name']}: {causes[-1]['message']}"
    head = _BEHIND_THE_MESSAGE.split(text, maxsplit=1)[0]
    while True:
        shorter = head
        for prefix in _PREFIXES:
            shorter = prefix.sub("", shorter, count=1)
        if shorter == head or not shorter.strip():
            return _DATA_LOSS.sub(_DATA_LOSS_HERE, head)
        head = shorter


def _shortened(text: str) -> str:
    line = " ".join(text.split()).rstrip(": ")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
