"""Row 4: one agent per host, which carries log lines to streams and loses none.

The main loop is `agent`'s. A line moves through these stages, and its position moves back through them once the line is
acknowledged, so that a crash at any moment repeats lines and loses none:

    input        `files`; or stdin and Unix sockets (`sources`), which `intake` writes to a disk buffer (`buffer`)
    lines        cut (`lines`, `framing`), joined into events (`joiner`), each with its position (`batch`)
    delivery     sent in the order of each source, and again after an error (`delivery`, `pending_send`)
    client       an idempotent producer: our own, of whole batches (`batch_client`, `partition_queue`, `encode`), or
                 librdkafka where TLS or SASL is asked for (`record_client`); `clients` chooses
    checkpoint   acknowledged positions, written every `checkpoint_ms` (`agent`, `data_dir`)

How files are followed:

    prospector   expands globs: what is new, renamed, resumed from the checkpoint, or a copy in the making
    registry     the followed files by path and identity
    watch        the states of one file: followed, rotated, detached, ended
    lifecycle    what goes with each change of state; the order in which files are read
    tail         reads one file: its generation (one content of one inode), position, unfinished last line
    fingerprint, rotation, handles, discover    telling contents apart; rotated copies; open files; globs

Two threads. The main thread runs the loop: it looks at files, reads, sends, polls the client and writes checkpoints; it
waits only where it polls. The intake's thread reads sockets and stdin, which cannot be read again, and syncs what it
read to the disk buffer.

Back pressure: while an output does not answer, the delivery fills up and files are not read; the disk buffer takes what
sockets and stdin bring until it is full, and then `when_full` decides.

It must not know what a line means. It talks to the log as any Kafka client does and imports nothing of the broker.
"""
