"""Row 6: the command `logboom`, one module for each group of commands.

`main` lists the commands and imports a module only when its command is called, so that `logboom publish` does not load
Spark. A command does four things: read options, build the settings of what it starts (`app`, `collector`, `pipeline`,
`bench`) or a Kafka client (`client`, `asking`), call it, print the result. `common` holds what all of them share: where
the broker is, `--json`, and how an error ends (one sentence on standard error and exit code 1; 2 for wrong options).

Nothing below may be reimplemented here: a command that needs to know how a log or a protocol works is in the wrong row.
"""
