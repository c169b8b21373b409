"""Row 4: metrics and health over HTTP: `/metrics` for Prometheus, `/healthz`, `/readyz`.

A request comes in on a thread of `server` (the standard library's HTTP server, bounded in connections and in the time
of each), which calls `door` as a WSGI application. `door` asks its question on the broker's event loop and waits for
the answer for three seconds at most: all counters belong to the loop and are read there, without locks, and a loop that
does not answer is itself the finding: `/healthz` says 503. So a slow scraper never holds up the broker, and a broker
that hangs is noticed.

    /metrics   what the sources yield that `app` hands in; `broker_metrics` has the broker's
    /healthz   200 if the loop answers: restart the process otherwise
    /readyz    200 if the broker serves clients, else 503 and the reason: start-up, stopping, a failed disk

Nothing here knows Kafka's protocol. It must never await anything of the broker: a scrape reads what is there.
"""
