"""Produce: two ways from a request to the broker's partitions, and one response.

`general` takes any request, as its reader returns it. `fast_path` takes requests that differ from an earlier one in
their correlation id and records alone, which is what a producer sends most of the time: they are recognised by
comparing bytes, appended in runs and answered from a template. Both use `appending` and `response`. Nothing here knows
a connection.
"""
