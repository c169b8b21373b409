"""Spark as this project uses it: a JVM, a session, readers and writers of the log, and what Spark says.

`jvm` finds a Java, `jars` the connector's jars, `gateway` starts the JVM so that signals meant for the driver do not
reach it, `settings` has the settings that matter and their reasons, `session` makes the session. Most of a short run is
the start of the JVM: it is started before anything else (`session.start_jvm`) and attached to when the rest is loaded,
and `jvm_archive` keeps a file of its classes. Where a session would be too much, `catalyst` is Spark's analyser and
expressions in a bare JVM: `pipeline check` and `pipeline test` use that. `kafka` reads and writes streams, `listening`
hears how far queries are behind, `causes` turns pages of stack traces into one sentence.

Must not know plans, batches or sinks.
"""
