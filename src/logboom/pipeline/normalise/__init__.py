"""Converts the fields of lines to the columns of events, a whole batch at a time.

A format returns rows (`rows.Row`: a dict of fields, or the reason why there are none) or, for many lines of one form,
columns (`rows.LineColumns`). Names of fields determine how they are used, in two steps:

1. `fields` decides which field fills which slot of the event: those that a rule maps (`mapping`), then the names that
   programs commonly use. It moves the values of slots out of the row; what is left becomes `attributes`.
2. `times` and `severity` read the values of slots, `origin` adds what the record knows beside its line (the collector's
   headers, the timestamp). A value that cannot be read as what its name promises is put back: it stays an attribute
   under its own name.

`event` does this for rows, `columns` for columns; a property test checks that both return the same events. Nothing here
knows formats, rules' conditions or the graph.
"""
