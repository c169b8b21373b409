"""What is in a message of NATS and in the answer to it. Pure: knows no connection, no loop, no clock.

    errors        why a message is refused before it gets to a partition, as an error of JetStream
    headers       the header block of a message
    envelope      Liftbridge's envelope, and acks in its way
    partitioning  which partition a message belongs to
    messages      a message becomes the content of a record, with the terms that its publisher asks for
    acks          answers as JetStream gives them

Whatever bytes come, nothing is raised here but `MessageRefusedError`.
"""
