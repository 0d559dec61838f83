"""`codedgrad who`: which workers are slow, how much, and since when.

`times` and `stopwatch` are what is measured; `ratios` compares the workers, `spells`
finds the steps in which one was slow, `slowness` gives `verdicts` that chance does not
bring about. `watcher` does so while a run goes on; `sentences` are for people.
"""
