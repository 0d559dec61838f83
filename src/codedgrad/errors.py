"""Every exception codedgrad raises; each holds facts, its text says what to do.

```text
CodedgradError
├── InvalidCode        (also ValueError)  parameters no such code, or bound, has
│   └── IllConditioned                    a code that exists but would lose digits
├── InvalidHeard       (also ValueError)  not a set of messages of this code
└── InvalidOption      (also ValueError)  a word of the command line that will not do
```
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "CodedgradError",
    "IllConditioned",
    "InvalidCode",
    "InvalidHeard",
    "InvalidOption",
]


class CodedgradError(Exception):
    """The root of the tree: catch it to catch everything of ours."""


class InvalidCode(CodedgradError, ValueError):
    """No code of this family, or bound on such codes, has these parameters.

    Attributes:
        family: Who was asked, such as `fractional`.
        problem: The rule that is broken, with the values given.
        advice: What would work, such as `tolerance in [0, 1, 2, 5]`.
    """

    def __init__(self, family: str, problem: str, advice: str) -> None:
        super().__init__(family, problem, advice)
        self.family = family
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.family}: {self.problem}; try {self.advice}"


class IllConditioned(InvalidCode):
    """A code that decodes on paper but multiplies rounding errors too much.

    Attributes:
        amplification: The factor found (at least this much).
        limit: The largest factor accepted.
        choices: Calls that build a better code, ready to paste.
    """

    def __init__(
        self,
        family: str,
        amplification: float,
        limit: float,
        choices: Sequence[str],
    ) -> None:
        self.amplification = amplification
        self.limit = limit
        self.choices = tuple(choices)
        super().__init__(
            family,
            f"decoding may multiply rounding errors by {amplification:.3g}, "
            f"more than the limit of {limit:g}",
            " or ".join(
                (*self.choices, "accept_amplification=True to build it anyway")
            ),
        )
        self.args = (family, amplification, limit, self.choices)  # survives pickling


class InvalidHeard(CodedgradError, ValueError):
    """What was heard is not a set of messages of the code at hand.

    Attributes:
        given: What was passed, shortened.
        messages: How many messages the code has.
    """

    def __init__(self, given: str, messages: int) -> None:
        super().__init__(given, messages)
        self.given = given
        self.messages = messages

    def __str__(self) -> str:
        return (
            f"heard must be message numbers from 0 to {self.messages - 1}, "
            f"got {self.given}"
        )


class InvalidOption(CodedgradError, ValueError):
    """A word of the command line is not what its option takes.

    Attributes:
        option: The option and what was given.
        advice: What would work.
    """

    def __init__(self, option: str, advice: str) -> None:
        super().__init__(option, advice)
        self.option = option
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.option}; try {self.advice}"
