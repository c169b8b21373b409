"""The parent of Spark's Python workers. Runs in executors; Spark starts it.

It leaves SIGTERM to the driver. Service managers signal every process of a service at once (systemd's
KillMode=control-group). The driver answers by letting the running batch come to its end, for which its workers have to
live on. Spark's own daemon would end them. They end with the JVM instead, which closes the daemon's standard input; the
daemon then sends them SIGHUP.

It imports the kernels once: each worker is forked from it and would else spend a second of CPU time on that. What no
kernel needs stays out, since the first batch waits for this process: pandas (see `without_pandas`) and the Kafka client
of the driver. Nor does it load pyspark from an archive where it is installed (see `worker_path`).
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
    # What was imported stays shared with the workers: no collection of theirs looks at, and so copies, its pages.
    gc.freeze()
    # A blocked signal stays blocked in forked workers, although these reset its handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    manager()
