"""Row 5: the whole broker under one seed, in simulated time, on a simulated disk. See the modules."""
