"""Sinks that send events to a server in requests: what they all need, whatever the server.

A kind of sink brings a `Target` (`target.py`): it encodes one event, and sends some encoded events and says of each
what became of it. Everything else is here:

- `writer` runs on the driver. It hands the records of a batch to tasks, keeps what they report until the whole batch
  is done, and then writes down what was delivered (`progress`), so that a repeat in the edge is known.
- `task` runs on executors: records become items, repeats are left out, refused records go to the dead letters.
- `requests` cuts items into requests by bytes and events; `sender` sends several at once, tries again with full jitter,
  cuts requests that are refused as a whole until the record that is refused is alone, and obeys servers that ask it to
  be slower (`adaptive_concurrency`).
- `opening` registers such a sink, opens it and tries it.

`repeats.ranges` says which records of an edge are done, so that another attempt at a batch sends the others only.

An event is delivered at least once. It is sent twice where a request had no answer, or where the router or an executor
was killed in the middle of a batch; a target whose server knows event ids leaves no trace of that.

This module stays empty, since `pipeline check` imports it: Arrow and clients are imported where a sink is opened.
"""
