"""The one line that a root prints when a signal has stopped it.

A script that is stopped prints no traceback, so this line is all that its user sees. It
goes to standard error and not to the log, which a user may have sent elsewhere.
"""

from __future__ import annotations

import sys

from codedgrad.torch.checkpoint.run_folder import Folder
from codedgrad.torch.signals import Terminated


def print_stop(stop: BaseException | None, steps: int, folder: Folder | None) -> None:
    """Print why and where a root has stopped, and what it has left behind.

    Args:
        stop: What ended it. Nothing is printed unless that was Ctrl-C or SIGTERM.
        steps: How many steps are done.
        folder: Of the run; None: it has none.
    """
    if isinstance(stop, KeyboardInterrupt):
        cause = "Ctrl-C"
    elif isinstance(stop, Terminated):
        cause = "SIGTERM"
    else:
        return
    when = "before the first step" if steps == 0 else f"after {_counted(steps)}"
    left = _left(steps, folder)
    print(f"codedgrad: stopped by {cause} {when}; {left}", file=sys.stderr, flush=True)


def _left(steps: int, folder: Folder | None) -> str:
    if folder is None:
        return "nothing was saved: the run has no run_dir"
    newest = folder.newest
    if newest is None:
        return f"there is no checkpoint in {folder.path} yet"
    saved, path = newest
    behind = "" if saved == steps else f" of {_counted(saved)}"
    return f'checkpoint{behind} {path}; go on with resume="auto"'


def _counted(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"
