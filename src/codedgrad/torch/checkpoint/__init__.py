"""Checkpoints and the folder of a run: written whole or not at all, without pickle."""
