"""Errors of which no client could be told: records of the internal stream `__advisories`, for people and their alarms.

pending   what was noted and is not written yet, counted together; pure
service   creates the stream, and writes to it once a second, whichever broker leads it

A record is a JSON object:

    type      what happened, such as `nats.dropped`; also the record's key
    time      when it happened last, of the events that it counts (RFC 3339, UTC)
    broker    the id of the broker that noticed it
    stream    the stream, if it concerns one
    reason    why, as in the labels of metrics
    count     how many of that type, stream and reason since the previous record
    message   a text about the last one of them, for people

There is at most one record a second for each type, stream and reason. What cannot be written is kept, counted together,
and written later; it is lost if the process ends. The metrics count all of it.
"""
