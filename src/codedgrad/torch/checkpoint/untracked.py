"""Warns of optimizers that train the model and are in no checkpoint.

A run that goes on without the state of its optimizer trains another model, and says
nothing. PyTorch calls a hook after every `step` of every optimizer of the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakMethod, WeakSet

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook

_log = logging.getLogger("codedgrad")


def warn_of_untracked(
    parameters: Iterable[nn.Parameter], tracked: Callable[[], Iterable[object]]
) -> Callable[[], None]:
    """Warn, once each, of optimizers of some parameters that are not tracked.

    Args:
        parameters: Of the model.
        tracked: A method that returns what is tracked; its object is held weakly.

    Returns:
        What ends it.
    """
    mine = {id(parameter) for parameter in parameters}  # lives as long as the object
    method = WeakMethod(tracked)
    seen: WeakSet[Optimizer] = WeakSet()

    def look(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer in seen:
            return
        ask = method()
        groups = optimizer.param_groups
        if ask is None or not any(id(p) in mine for g in groups for p in g["params"]):
            return
        seen.add(optimizer)
        if not any(_has(each, optimizer) for each in ask()):
            _log.warning(
                "%s trains the model and is not tracked: a run that goes on begins it "
                "anew; write coded.track(optimizer=optimizer) before the first step",
                type(optimizer).__name__,
            )

    return register_optimizer_step_post_hook(look).remove


def _has(tracked: object, optimizer: Optimizer) -> bool:
    """Whether it is the optimizer, or a wrapper that answers for its state.

    A scheduler has its optimizer as well, and leaves it out of its state.
    """
    if tracked is optimizer:
        return True
    parts = getattr(tracked, "__dict__", {}).values()
    return not isinstance(tracked, LRScheduler) and any(p is optimizer for p in parts)
