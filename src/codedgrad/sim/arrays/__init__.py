"""Fast paths: arrays of steps without events, equal to the events sample by sample."""
