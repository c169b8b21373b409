"""What lines look like: one file for each format, or for a few that differ in little.

A format is a module of this package with `FORMATS`, a tuple of `base.FormatType`: its name in a pipeline's file, the
keys of its rules, the conversion of these to a plan node, and the node itself, which reads lines. `registry` collects
them; there is no other list, so a new format is one new file here and its row in docs/pipeline.md.

A node (`base.FormatNode`) reads the values of a whole batch: for each it returns the line's fields by name, or the
reason for the dead letter. `logboom.pipeline.normalise` interprets fields by their names. A line that cannot be read
never raises an exception. A node is frozen and small: it is pickled for executors and stored in the plan.
"""
