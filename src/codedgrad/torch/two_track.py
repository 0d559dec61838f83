"""Adam for approximate gradients: a second moment of its own."""

from __future__ import annotations

from typing import TypeVar

from torch.optim import Adam, AdamW, Optimizer

from codedgrad.errors import InvalidCall, InvalidJob, InvalidOptions

_O = TypeVar("_O", bound=Optimizer)
_MARK = "two_track"  # in every group, so that a checkpoint has it too


def two_track(optimizer: _O, shrink: float) -> _O:
    r"""Let the second moment of Adam be that of a shrunk gradient.

    With $\kappa$ = `shrink` and $\hat g$ the gradient,

    $$m \leftarrow \beta_1 m + (1 - \beta_1) \, \hat g, \qquad
    v \leftarrow \beta_2 v + (1 - \beta_2) (\kappa \hat g)^2, \qquad
    x \leftarrow x - \eta \, \bar m / (\sqrt{\bar v} + \epsilon),$$

    where bars correct the bias of the first steps. Since
    $\eta \, \bar m / (\kappa \sqrt{\bar u} + \epsilon) = (\eta / \kappa) \, \bar m /
    (\sqrt{\bar u} + \epsilon / \kappa)$, with $u$ the usual second moment, that is Adam
    with `lr` and `eps` divided by $\kappa$, and it is all that is done here. Decay that
    AdamW takes from the weights, $\eta$ times `weight_decay`, stays what it was; decay
    that Adam adds to the gradient goes through both moments.

    From the paper (Song and Choi, 2025, arXiv:2510.22539): two decodings of the same
    messages, an unbiased one for the first moment and, for the second, one that is
    shrunk towards zero because it minimises the mean squared error. Ours: that for
    their codes the second is $\kappa$ times the first, $\kappa = S / (1 + S)$ with
    $S = \sum_i (1 - p_i) / p_i$ and $p_i$ the probability that worker $i$ is late; so
    no second decoding is needed, and any factor will do.

    It undoes what the noise of an unbiased sum adds to the second moment, which makes
    Adam's steps too short. It makes all of them longer alike: it neither takes noise
    out of a step nor changes its direction, and where `eps` does not matter it is a
    larger `lr` and nothing more.

    Args:
        optimizer: Adam or AdamW; its groups are changed. Do this before a scheduler is
            made of it: one with rates of its own, such as OneCycleLR, needs them
            divided by `shrink`. Groups that are added later are not changed. What it
            loads from a checkpoint is taken as it was saved.
        shrink: $\kappa$, above 0 and up to 1, which changes nothing.

    Returns:
        The optimizer.

    Example:
        >>> import torch
        >>> x = torch.zeros(3, requires_grad=True)
        >>> optimizer = two_track(torch.optim.Adam([x], lr=0.01), shrink=0.5)
        >>> optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["eps"]
        (0.02, 2e-08)
    """
    _check(optimizer, shrink)
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] / shrink
        group["eps"] = group["eps"] / shrink
        if group.get("decoupled_weight_decay", isinstance(optimizer, AdamW)):
            group["weight_decay"] = group["weight_decay"] * shrink
        group[_MARK] = shrink
    return optimizer


def _check(optimizer: Optimizer, shrink: float) -> None:
    if type(optimizer) not in (Adam, AdamW):
        problem = f"takes Adam or AdamW, not {type(optimizer).__name__}"
        raise InvalidJob("two_track", problem, "torch.optim.AdamW")
    if not 0 < shrink <= 1:
        problem = f"is {shrink}"
        raise InvalidOptions("two_track: shrink", problem, "above 0, and up to 1")
    for group in optimizer.param_groups:
        if _MARK in group:
            problem = f"was called before, with shrink = {group[_MARK]}"
            raise InvalidCall("two_track", problem, "once for an optimizer")
        if "initial_lr" in group:
            problem = "comes after a scheduler, which would put its own rates back"
            raise InvalidCall("two_track", problem, "to make the scheduler later")
