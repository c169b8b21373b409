"""What lines look like: one file for each format, or for a few that differ in little.

A format is a module of this package with `FORMATS`, a tuple of `base.FormatType`: its name in a pipeline's file, the
keys that a rule of it takes, how these become its node in the plan, and the node itself, which reads lines. `registry`
collects them; nothing else lists them, so a new format is one new file here and its line in docs/pipeline.md.

A node (`base.FormatNode`) reads the values of a whole batch at once: for each it gives the line's fields by name, or
the reason why the line has none, in the words of a dead letter. What a field means is decided by its name, in
`logboom.pipeline.normalise`. A line that cannot be read never raises. A node is frozen and small: it is pickled to
executors and written into the plan.
"""
