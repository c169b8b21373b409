"""Spark as this project uses it: a JVM, a session, readers and writers of the log, and what Spark says.

`jvm` finds a Java, `jars` the connector's jars, `gateway` starts the JVM so that signals meant for the driver do not
reach it, `daemon` does the same for the Python workers, `session` makes the session with the settings that matter and
their reasons. `kafka` reads and writes streams, `listening` hears how far queries are behind, `causes` turns pages of
stack traces into one sentence.

Must not know plans, batches or sinks.
"""
