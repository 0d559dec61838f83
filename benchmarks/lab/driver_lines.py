"""The lines of JSON that `training.py` prints, for the program that watches it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import IO, Any

Line = dict[str, Any]


class DriverLines:
    """Reads what the driver prints, as it comes, in a thread of its own.

    Args:
        stream: The driver's output.
        patience: Seconds that `wait` waits.

    Attributes:
        lines: Read so far, those of JSON.
        others: Read so far, without those: what mpirun says, and tracebacks.
    """

    def __init__(self, stream: IO[str], patience: float) -> None:
        self.lines: list[Line] = []
        self.others: list[str] = []
        self._patience = patience
        self._news = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            with self._news:
                if line.startswith("{"):
                    self.lines.append(json.loads(line))
                else:
                    self.others.append(line)
                self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def wait(self, wanted: Callable[[Line], bool], after: float = 0.0) -> Line | None:
        """Return the first such line after a time; None: there is none."""
        seen, until = 0, time.monotonic() + self._patience
        with self._news:
            while True:
                for line in self.lines[seen:]:
                    if line["at"] > after and wanted(line):
                        return line
                seen = len(self.lines)
                left = until - time.monotonic()
                if self._is_over or left <= 0:
                    return None
                self._news.wait(left)

    def steps(self, since: float = 0.0, until: float = float("inf")) -> list[Line]:
        """Return the lines of steps that ended in some time."""
        return self.of(("step",), since, until)

    def of(
        self, kinds: tuple[str, ...], since: float = 0.0, until: float = float("inf")
    ) -> list[Line]:
        """Return the lines of these kinds from some time."""
        with self._news:
            lines = list(self.lines)
        return [x for x in lines if x["what"] in kinds and since < x["at"] <= until]

    def go_on(self, steps: int) -> None:
        """Wait for so many further steps."""
        done = self.steps()[-1]["step"] if self.steps() else -1
        self.wait(lambda line: line.get("step", -1) >= done + steps)
