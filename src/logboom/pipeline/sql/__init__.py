"""Which SQL a pipeline's file may use, and how it is made safe: no record may stop a batch.

The conditions of a file are Spark SQL over single records. A record is written by anybody, so a condition has to bear
every value within the limits of a record: an error must be that record's alone, and neither time nor memory may grow
out of proportion. Spark does not promise that of every function: some build results of any size, some run without end
on chosen text (all that use `java.util.regex`), some end the whole JVM with an `Error`, which no `try` of SQL catches.

So there is a list of what may be used (`functions`); all else is refused by name when a file is compiled. `review`
walks the tree of a condition, as Spark's parser gives it, and says in one sentence why it may not run. `re2` exchanges
what would use `java.util.regex` for RE2/J, whose time is proportional to the text; Spark brings that library along.
Errors that are left are exceptions, which `execute.flow` turns into the dead letter of the one record.

The modules here see Spark only through py4j: `check` uses them in a bare JVM, a running pipeline in Spark's own. They
must not know nodes of a pipeline or DataFrames. docs/decisions/0017-sql-of-conditions.md has the reasons.
"""
