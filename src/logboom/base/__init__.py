"""Row 0: the words that all packages share, and nothing of what is done with them.

- `ids`: types for numbers and names that must not be mixed up (Offset, Epoch, BrokerId, StreamId, ...)
- `errors`: what can be answered to a client; each class has one Kafka error code, in one table of the kafka package
- `ports`: the protocols through which everything else reaches the machine (Disk, File, Clock, Ids, Workers), so that a
  simulation can stand in for it
- `settings`, `dynamic`: a setting's description and documentation; a value that can change while the process runs
- `quantities`, `units`: sizes and durations as people write them; constants
- `build`: whether this is plain Python or the compiled build
- `limits`: how much of a limit is used, for metrics; `yaml`: YAML that knows the line of each key
"""
