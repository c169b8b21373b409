"""This project's interface to Spark: a JVM, a session, readers and writers of the log, and Spark's messages.

`jvm` finds Java, `jars` the connector's jars, `gateway` starts the JVM so that signals for the driver do not reach it,
`settings` has the settings with their reasons, `session` creates the session. `kafka` reads and writes streams,
`listening` receives the lag of queries, `causes` reduces a stack trace to one sentence.

What takes time in a short run, and how it is reduced:

- The JVM needs a second to come up. `session.start_jvm` starts it before the rest of the program is imported, and
  `start_session` attaches to it afterwards.
- Spark loads some 25,000 classes. `jvm_archive` keeps them in a file that later JVMs map instead.
- Spark's Python workers are forked from one process that has imported the kernels (`run.daemon`). `session.warm_up`
  runs an empty job, so that this process starts while the first query is planned.
- A class or Scala object of the JVM is looked up once (`jvm_classes`, and `py4j_cache` for those of PySpark): by py4j's
  own way each use searches all jars.
- `pipeline check` and `pipeline test` need no session: `catalyst` is Spark's analyser and expressions in a bare JVM,
  which is up in half a second.

Must not know plans, batches or sinks.
"""
