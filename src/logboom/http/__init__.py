"""Row 4: metrics and health over HTTP: `/metrics` for Prometheus, `/healthz`, `/readyz`.

There are two event loops. The server, its connections and the rendering of metrics run on one of their own, on a thread
(`broker.runtime.SecondLoop`), so that a broker that hangs is noticed and a slow scraper holds up nothing. Counters
belong to the broker's loop and are read there, without locks: `service` puts its question to that loop and waits for
the answer, for three seconds at most. A loop that does not answer in time is itself the finding: `/healthz` says 503.

    /metrics   what the sources yield that `app` hands in; `broker_metrics` has the broker's
    /healthz   200 if the broker's loop answers: restart the process otherwise
    /readyz    200 if the broker serves clients, else 503 and the reason: start-up, stopping, a failed disk

From the wire to the answer: `request` collects the head of a request (pure), `server` holds the connections and bounds
them in number and time, `service` is the application; `calls` goes from one loop to the other.

Nothing here knows Kafka's protocol. It must never await anything of the broker: a scrape reads what is there. Time and
threads come through the broker's Runtime, so that `sim` runs this server as it is.
"""
