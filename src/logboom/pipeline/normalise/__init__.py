"""From the fields of a line to the one shape of an event, a whole batch at a time.

A format gives rows (`rows`: a dict of fields, or the reason why there are none) or, for many lines of one form, columns
(`rows.Cut`). `fields` decides which field fills which slot of the event: those that a rule maps, then the names that
programs commonly use. `times` and `severity` read values, `origin` adds what the record knows beside its line (the
collector's headers, the timestamp). `event` puts the columns of rows together, `cuts` those of columns; a property test
holds the two to the same events. What a value is not able to be, it stays: an attribute under its own name.
"""
