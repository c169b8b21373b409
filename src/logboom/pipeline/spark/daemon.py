"""The parent of Spark's Python workers, which leaves SIGTERM to the driver. Runs in executors; Spark starts it.

Service managers signal every process of a service at once (systemd's KillMode=control-group). The driver answers by
letting the running batch come to its end, which needs the workers. Spark's own daemon would end them on SIGTERM. Here
they end with the JVM, which closes the daemon's standard input; the daemon then sends them SIGHUP.
"""

import signal

from pyspark.daemon import manager

if __name__ == "__main__":
    # A blocked signal stays blocked in forked workers, although these reset its handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    manager()
