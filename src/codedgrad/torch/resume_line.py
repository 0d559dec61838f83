"""The one line that a root prints about what it resumes.

It goes to standard error and not to the log, which shows no information by default: a
user who misspells a folder must see that the run begins at step 0.
"""

from __future__ import annotations

import sys

from codedgrad.torch.checkpoint.run_folder import Folder


def print_resume(folder: Folder) -> None:
    """Print from which step the run goes on, or that there is nothing to resume."""
    if folder.newest is not None:
        happened = f"going on from step {folder.step} of {folder.path}"
    elif folder.has_begun:
        problem = "has figures of steps, but no checkpoint"
        happened = f"{folder.path} {problem}: beginning at step 0"
    else:
        happened = f"nothing to resume in {folder.path}: beginning at step 0"
    print(f"codedgrad: {happened}", file=sys.stderr, flush=True)
