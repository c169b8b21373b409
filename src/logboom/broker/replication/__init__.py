"""Replication between brokers: what partitions that follow ask of leaders, and how leaders serve it.

    service   the port that partitions call, and the handlers of the port to other brokers; its pieces are
    fetcher   one for each leader that is followed: requests, answers, failures
    serving   the leader's side: fetches looked at, reads for them, answers
    fetch_response  the answer to one request of a follower, in parts or whole
    fetch_session   what one follower waits for at a leader, and what was sent ahead of what it has synced
    throttle  how fast replicas that are not in sync copy (KIP-73)
    isr       proposals to the controller, and the clock by which followers are late
    wire      the messages, in msgpack, with the records behind them as they lie in the log
    ports     what the controller does for it
    context   what all of these share: the cluster, partitions, settings, the log

A fetch asks for one partition, once; it is answered with records, with the place where the two logs part, or with a
newer high-water mark, and the follower asks again. That of a follower in sync stands: it is answered in parts of the
request that waits, and goes on behind the records of each without being sent again. A request names the fetches that
are new since the one before, and the leader keeps those it has not answered yet: that is a session. It ends with the
first request that fails, and the next one names everything again. The leader answers as soon as there is anything new,
else after a while with nothing; a request that comes meanwhile takes the place of the one that waits.

What a follower has synced travels with its next fetch, or, where that is at the leader already, in a message of its
own that is not answered. So leader and follower write at the same time, and the high-water mark moves with the slower.

Everything is on the loop. It knows partitions by `partition.role`, and no Kafka request.
"""
