"""Several nodes of one machine under one process: `logboom cluster up` and `logboom serve --processes N`.

    child       one `logboom serve` in a process of its own: its ready line, its log, its end
    launch      what a child runs first: from then on it dies with the supervisor, however that ends
    nats_server a nats-server beside a broker or a cluster, kept running
    supervisor  all children: start, stop, kill, pause, resume; starts a crashed one again where it is asked to
    folder      what is kept in one folder: cluster.json, the cluster's key, a data directory for each node
    remote      a socket in that folder, on which commands of other terminals ask the supervisor to do something
    run         all of it, from the first start to the last stop, with the signals that ask for it

A node that is stopped, killed or paused on purpose stays so until it is started or resumed. The nodes are in sessions
of their own, so that a Ctrl-C reaches the supervisor alone, which stops them in order.

Knows processes and files. What a node is started with is handed in as a command line; nothing here knows a protocol, a
setting, or what a cluster decides.
"""
