"""Which SQL a pipeline's file may use, and how it is made safe: no record may stop a batch.

The conditions of a file are Spark SQL over single records. Records are untrusted input, so a condition has to handle
every value within the limits of a record: an error may affect that record only, and time and memory must stay
proportional to the record's size. Spark does not promise that of every function: some build results of any size, some
take exponential time on chosen text (all that use `java.util.regex`), some end the whole JVM with an `Error`, which no
`try` of SQL catches.

So there is a list of what may be used (`functions`); all else is refused by name when a file is compiled. `review`
walks the tree of a condition, as Spark's parser gives it, and returns one sentence where it may not run. `regex`
replaces what would use `java.util.regex` by RE2/J, whose time is proportional to the text; Spark ships that library.
`copies` bounds how often a part is evaluated. The errors that remain are exceptions, which `execute.flow` turns into
the dead letter of the one record. `tree` is how these modules read and build Catalyst's expressions.

The modules here see Spark only through py4j: `check` uses them in a bare JVM, a running pipeline in Spark's own. They
must not know nodes of a pipeline or DataFrames. docs/decisions/0017-sql-of-conditions.md has the reasons.
"""
