"""Rules of a parse proposed from sample lines, for a person to edit.

`proposal` asks which of the built-in formats read the lines; `header` recognises times and severities at the start of
what is left, `templates` groups it by its words (Drain) and finds what changes from line to line. All that is written
as a pipeline's file that `check` accepts, with what its rules read. Knows lines and formats; must not know Spark.
"""
