"""Recording a DistributedDataParallel run: how long each of its workers takes alone."""
