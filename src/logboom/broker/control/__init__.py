"""How the cluster decides: commands on their way to the controller, and the controller while this broker is it.

    a front end, the registration, a leader   ->  channel     sends a command to whoever leads the consensus group
    controller                           ->  one command at a time: `stream_commands`, `broker_commands`
                                         ->  records by `logboom.metadata`, committed as one entry of the group's log
    metadata_state (the broker's)        ->  every broker applies the entry; the one that asked then answers

    commands            the messages, their answers, and which of them may be repeated
    context             what a command works with: the image, the commit, settings
    channel             sends commands to the controller
    controllership      which broker the controller is
    registration        this broker's own part: it registers, sends heartbeats, knows until when its lease holds
    liveness            the controller's part: it renews leases, and fences brokers whose leases have ended
    wall_clocks         what the wall clocks of most brokers show, as the controller hears with heartbeats
    nodes               which broker a node of the consensus group is
    membership, voters  the members of that group: adding and removing them, and which of them vote
    upkeep              replicas of internal streams, observers, and preferred leaders
    unclean_recovery    a leader for partitions whose in-sync replicas are all gone, by their logs (KIP-966)
    elections           leaders on request, those that wait together as one change
    controller_loop     runs upkeep and recovery while this broker is the controller
    partition_control   what a broker asks for its own partitions
    clean_shutdown      the marker by which a start knows that the stop before was clean (KIP-966)

This package must not know partitions, logs or front ends. Every decision is a record; leases alone are in no record.
"""
