"""The parent of Spark's Python workers. Runs in executors; Spark starts it.

It ignores SIGTERM, which the driver handles. Service managers signal every process of a service at once (systemd's
KillMode=control-group). The driver then lets the running batch finish, which needs the workers. Spark's own daemon
would end them. This one ends with the JVM, which closes its standard input; then it sends SIGHUP to the workers.

It imports the kernels once: each worker is forked from it and would otherwise need a second of CPU time for that. It
does not import what no kernel needs, because the first batch waits for this process: pandas (see `without_pandas`) and
the driver's Kafka client. It also does not load pyspark from a zip file if it is installed (see `worker_path`).
"""

import gc
import signal

from logboom.base.without_packages import UNUSED_ANYWHERE, without_packages
from logboom.pipeline.run.worker_path import forget_packages_of_archives, leave_out_archives

if __name__ == "__main__":
    leave_out_archives()

from pyspark.daemon import manager

with without_packages(*UNUSED_ANYWHERE):
    import logboom.pipeline.edge.emitter
    import logboom.pipeline.execute.stages
    import logboom.pipeline.sinks.parquet.delivery
    import logboom.pipeline.sinks.parquet.staging  # noqa: F401
from logboom.pipeline.parse.formats.registry import format_types
from logboom.pipeline.transforms.registry import transform_types
from logboom.pipeline.without_pandas import decide_without_pandas

if __name__ == "__main__":
    transform_types()
    format_types()
    decide_without_pandas()
    forget_packages_of_archives()
    # Imported objects stay shared with the workers: their garbage collections do not touch, and so copy, these pages.
    gc.freeze()
    # Blocked signals stay blocked in forked workers, although the workers reset the handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    manager()
