"""Values of events encrypted under a named key, and read back by whoever holds it.

`cipher` turns one JSON value into a text and back; `batch` does it to fields of whole Arrow batches; `reading` finds
such texts in JSON and opens them. Keys come as bytes: where from is not known here.
"""
