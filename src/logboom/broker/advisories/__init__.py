"""What went wrong without a client that could be told: records of the internal stream `__advisories`, for people and
their alarms.

pending   what was noted and is not written yet, counted together; pure
service   has the stream made, and writes to it once a second, on whichever broker leads it

A record is a JSON object:

    type      what happened, such as `nats.dropped`; also the record's key
    time      when, the last time of those that it counts (RFC 3339, UTC)
    broker    the id of the broker that saw it
    stream    of which stream, where it is about one
    reason    why, a word of metrics
    count     how many of that type, stream and reason since the record before it
    message   what was said of the last one of them, for people

There is at most one record a second for each type, stream and reason. What cannot be written is kept, counted together,
and written later; it goes with the process. The metrics count all of it.
"""
