"""Row 3: the shell of one process. It owns the cores, the threads, the real disk and the real clock.

| module | what it does |
|---|---|
| `broker` | composes everything; start, stop, create, delete: the doors' way in |
| `partition` | append -> flush -> replication -> HW -> answers; reads; watchers |
| `flusher` | the one thread per log dir that writes and syncs: group commit |
| `partition_store` | directories of partitions: made, opened, set aside, removed |
| `ownership` | whose a directory is, by the mark in it; what may be removed |
| `metadata_log` | facts made durable before they count |
| `data_dir` | whose the directory is, its format, its lock |
| `maintenance` | retention, checkpoints and background syncs |
| `group_service` | consumer groups on top of `__consumer_offsets` |
| `config`, `metrics` | settings and counters |

It must not know any protocol: doors call it, it calls nobody above.
"""
