"""How the cluster decides: commands on their way to the controller, and the controller while this broker is it.

    a door, the registration, a leader   ->  channel     sends a command to whoever leads the consensus group
    controller                           ->  one command at a time: `stream_commands`, `broker_commands`
                                         ->  records by `logboom.metadata`, committed as one entry of the group's log
    metadata_state (the broker's)        ->  every broker applies the entry; the one that asked then answers

    commands         the messages, their answers, and which of them may be repeated
    context          what a command works with: the image, the commit, settings
    channel, view    the way to the controller; who that is
    registration     this broker's own part: it registers, sends heartbeats, knows until when its lease holds
    liveness         the controller's part: it renews leases, and fences brokers whose leases are over
    members, membership, nodes   who belongs to the consensus group and who votes; which broker a node of it is
    upkeep           replicas of internal streams, and preferred leaders
    recovery         partitions that nobody may lead, where there is something to choose from
    partition_control   what a broker asks for its own partitions
    clean_shutdown   the marker by which a start knows that the stop before was clean (KIP-966)

It must not know partitions, logs or doors. Nothing is decided here but by records; who is alive is in no record.
"""
