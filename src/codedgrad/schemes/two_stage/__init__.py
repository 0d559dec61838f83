"""Two stages: parts in turn, then a code over what is left.

`plan` is the plan of a step, `first_stage` and `second_stage` its halves,
`still_to_hear` what is still to be heard and `block_codes` the codes of the second
stage. `choose_staging` picks the starters and the tolerance by replaying past steps
(`past_times`) in arrays (`model`). `matching` is for workers that hold some parts only.
"""

from codedgrad.schemes.two_stage.scheme import TwoStage, two_stage

__all__ = ["TwoStage", "two_stage"]
