"""Which SQL a pipeline's file may use, and how it is made safe: no record may stop a batch.

The conditions of a file are Spark SQL over single records. Records are untrusted input, so a condition has to handle
every value within the limits of a record: an error may affect that record only, and time and memory must stay
proportional to the record's size. Spark does not promise that of every function: some build results of any size, some
take exponential time on chosen text (all that use `java.util.regex`), some end the whole JVM with an `Error`, which no
`try` of SQL catches.

So there is a list of allowed functions (`functions`); all others are refused by name when a file is compiled. `review`
checks the tree of a condition, as Spark's parser returns it, and returns one sentence if it is not allowed. `regex`
replaces everything that would use `java.util.regex` by RE2/J, whose time is proportional to the text; Spark includes
that library. `copies` limits how often a part is evaluated. The remaining errors are exceptions, which `execute.flow`
turns into a dead letter for the one record. With `tree` these modules read and build Catalyst's expressions.

The modules here see Spark only through py4j: `check` uses them in a bare JVM, a running pipeline in Spark's own. They
must not know nodes of a pipeline or DataFrames. docs/decisions/0017-sql-of-conditions.md has the reasons.
"""
