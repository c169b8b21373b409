"""The common part of all sinks that send events to a server in requests.

Such a sink provides a `Target` (`target.py`), which encodes one event, sends a list of encoded events, and reports the
result of each. Everything else is here:

- `writer` runs on the driver. It hands the records of a batch to tasks, keeps what they report until the whole batch
  is done, and then writes down what was delivered (`progress`), so that a repeat in the edge is known.
- `task` runs on executors: records become items, repeats are left out, refused records go to the dead letters.
- `requests` cuts items into requests by bytes and events; `sender` sends several at once, tries again with full jitter,
  cuts requests that are refused as a whole until the record that is refused is alone, and obeys servers that ask it to
  be slower (`adaptive_concurrency`).
- `opening` registers such a sink, opens it and tries it.

`repeats.ranges` records which records of an edge are done, so that another attempt at a batch sends only the others.

An event is delivered at least once. It is sent twice if a request had no answer, or if the router or an executor was
killed in the middle of a batch. A server that deduplicates by event id still stores it once.

This module stays empty, since `pipeline check` imports it: Arrow and clients are imported where a sink is opened.
"""
