"""The default: lists of parts that are re-planned inside the step.

`plan` is the plan of a step. It uses, in this order:

```text
  forecast        how long each worker should take, from past steps
  worker_lists    the parts each worker has, and when it should be through
  outstanding     the parts that count as done, and which workers have the rest
  earliest_end    when the step could end, and how many parts each worker can do by then
  reassign        which worker should have which parts then, with the fewest moves
  change_orders   the orders that make it so: cuts, segments, copies
  uploads         which sums to ask for, a disjoint cover of them, deadlines
```
"""

from codedgrad.schemes.auto.scheme import Auto, auto

__all__ = ["Auto", "auto"]
