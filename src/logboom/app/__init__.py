"""Row 5: one node and its process: its configuration, its log, its metrics, and its life from start to stop.

The one place that knows the broker and all front ends. `node` starts them in this order and stops them in the other:

    HTTP      first, so that /healthz and /readyz answer while logs are recovered
    broker    recovers the data directory; this may take minutes after a crash
    Kafka     so that no client connects before it can be served
    NATS      last: messages come as soon as something is subscribed to

A stop (SIGTERM, SIGINT) closes the listeners, answers the requests that were accepted, flushes and closes the logs, all
within a bound of time; a second signal ends the process at once, which is as safe as a crash. `process` has that bound
and `stop_signals` the signals; `node` knows neither, so that `sim` runs a whole node in simulated time.

`config` is the model of the whole configuration and merges its sources: flags over environment over file. Each package
declares its own settings (broker.config, kafka.config, http.config); `reference` writes docs/configuration.md from the
models. `log` sets up structlog. `kafka_metrics` and `limit_metrics` turn counters into Prometheus metrics; they are
here because the Kafka and HTTP servers are of one row and do not import each other. `notify` talks to systemd.
`supervisor` runs several nodes of one machine, each in a process of its own.

Nothing below imports this package; `sim` and `cli` do. What is decided at a protocol, or on the disk, belongs below.
"""
