"""Every exception codedgrad raises; each holds facts, its text says what to do.

```text
CodedgradError
├── InvalidCode        (also ValueError)  parameters no such code, or bound, has
│   └── IllConditioned                    a code that exists but would lose digits
├── InvalidHeard       (also ValueError)  not a set of messages of this code
├── InvalidDelays      (also ValueError)  a delay model or recording that cannot be
├── InvalidScheme      (also ValueError)  a scheme, or a stop rule, that cannot be
├── InvalidInput       (also ValueError)  something that a caller passed will not do:
│   ├── InvalidJob                        the model, the loss, the metrics, a gradient
│   ├── InvalidData                       the data set, a batch, how samples are joined
│   ├── InvalidOptions                    an argument, or an option of the command line
│   ├── InvalidCall                       a method called at a moment that has no use
│   ├── InvalidFolder                     the folder of a run
│   │   └── FolderInUse                   another root holds it
│   └── InvalidScenario                   a key of a scenario, or a simulated network
├── InvalidTrace       (also ValueError)  a file that is not a trace, or not readable
├── InvalidCheckpoint  (also ValueError)  a state no checkpoint holds, or no such file
│   └── OtherVersion                      a whole one, of another version
├── EngineFailed       (also RuntimeError) processes or memory that cannot be had
├── JobFailed          (also RuntimeError) the user's code raised, or ended its worker
├── StepGivenUp        (also RuntimeError) a step that ended without a sum
├── LockLost           (also RuntimeError) a run's folder that another root has taken
├── WrongSum           (also RuntimeError) a sum that its messages do not add up to
├── Violation          (also AssertionError) a code, scheme or engine breaks a rule
└── ProtocolError      (also RuntimeError) a mistake of ours: a driver's or a scheme's
    ├── BrokenPlan                        an answer of a plan that cannot be meant
    └── StuckStep                         nothing can happen any more, the step is open
```
"""

from __future__ import annotations

from collections.abc import Sequence


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


class InvalidDelays(CodedgradError, ValueError):
    """A model of delays, or a recording of them, breaks a rule.

    Attributes:
        model: Who was asked, such as `markov`, or the file at fault.
        problem: The rule that is broken, with the values given.
        advice: What would work, such as `a number from 0 to 1`.
    """

    def __init__(self, model: str, problem: str, advice: str) -> None:
        super().__init__(model, problem, advice)
        self.model = model
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.model}: {self.problem}; try {self.advice}"


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


class InvalidScheme(CodedgradError, ValueError):
    """A scheme, or a stop rule, that cannot be.

    Attributes:
        problem: The rule that is broken, with the values given.
        advice: What would work.
    """

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.problem}; try {self.advice}"


class InvalidInput(CodedgradError, ValueError):
    """Something that a caller passed cannot be used; its subclasses say what it was.

    Attributes:
        where: The argument, the key or the file.
        problem: What is wrong with it.
        advice: What would be right.
    """

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(where, problem, advice)
        self.where = where
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; try {self.advice}"


class InvalidJob(InvalidInput):
    """The job cannot be trained: its model, loss, metrics or a gradient."""


class InvalidData(InvalidInput):
    """The data set, or a batch made of it, cannot be used."""


class InvalidOptions(InvalidInput):
    """An argument of a function, or an option of the command line, cannot be used.

    Such as `workers`, `patience` or `--out`; or the option needs a package that is not
    installed.
    """


class InvalidCall(InvalidInput):
    """A method was called at the wrong moment, such as `backward` twice in a step."""


class InvalidFolder(InvalidInput):
    """The folder of a run cannot be used as asked."""


class FolderInUse(InvalidFolder):
    """The folder of a run has a root already, and that root is alive."""


class InvalidScenario(InvalidInput):
    """A scenario, or a network in it, cannot be simulated."""


class InvalidTrace(CodedgradError, ValueError):
    """A file that is not a trace, or cannot be read as one.

    Attributes:
        path: The file.
        problem: What is wrong, and on which line.
    """

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class InvalidCheckpoint(CodedgradError, ValueError):
    """A checkpoint that cannot be written, or cannot be read as one.

    Attributes:
        path: The file or the folder.
        problem: What is wrong, and what to do.
    """

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class OtherVersion(InvalidCheckpoint):
    """A checkpoint is whole, but of another version of the format.

    A run must not fall back from it to an older checkpoint, as from a damaged one.
    """


class EngineFailed(CodedgradError, RuntimeError):
    """An engine cannot start, or cannot go on.

    Attributes:
        problem: What it needs and does not get.
        advice: What would help.
    """

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.problem}; try {self.advice}"


class JobFailed(CodedgradError, RuntimeError):
    """What a user gave to be computed raised an exception in a worker, or ended it.

    Attributes:
        where: Where that was, such as `worker 3, step 7, part 2`.
        traceback: As the worker would have printed it; one line where there is none.
        training: The run so far, if a whole run has ended by it.
    """

    def __init__(self, where: str, traceback: str) -> None:
        super().__init__(where, traceback)
        self.where = where
        self.traceback = traceback
        self.training: object = None

    def __str__(self) -> str:
        lines = self.traceback.strip().splitlines()
        said = f"{self.where}: {lines[-1]}"
        return said if len(lines) == 1 else f"{said}\n\n{self.traceback}"


class StepGivenUp(CodedgradError, RuntimeError):
    """A step ended without a sum; no parameter was changed by it.

    Attributes:
        step: The step.
        reason: Why, who was lost or late, and what would have survived.
        training: The run so far, if a whole run was given up.
    """

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(step, reason)
        self.step = step
        self.reason = reason
        self.training: object = None

    def __str__(self) -> str:
        return f"step {self.step} was given up: {self.reason}"


class LockLost(CodedgradError, RuntimeError):
    """A root no longer holds its run's folder, so it must not write to it any more.

    Attributes:
        path: The folder.
        problem: Who holds it, or why that is not known, and what to do.
    """

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class WrongSum(CodedgradError, RuntimeError):
    """The sum of a step is not what its messages add up to; nobody was given it.

    Attributes:
        step: The step.
        messages: What was added up: numbers of messages, and the workers they are of.
        problem: What does not fit.
    """

    def __init__(
        self, step: int, messages: Sequence[tuple[int, int]], problem: str
    ) -> None:
        super().__init__(step, messages, problem)
        self.step = step
        self.messages = tuple(messages)
        self.problem = problem

    def __str__(self) -> str:
        named = [f"{message} of worker {worker}" for message, worker in self.messages]
        return (
            f"step {self.step}: the sum of messages {', '.join(named)} is wrong: "
            f"{self.problem}; memory, a link or codedgrad is broken: go on from the "
            f"last checkpoint, and report it if it happens again"
        )


class ProtocolError(CodedgradError, RuntimeError):
    """A driver or a scheme does what none may do; please report it, with the trace."""


class BrokenPlan(ProtocolError):
    """A plan gave an answer that cannot be meant.

    Attributes:
        answer: The order or decision.
        problem: Why not.
    """

    def __init__(self, answer: object, problem: str) -> None:
        super().__init__(answer, problem)
        self.answer = answer
        self.problem = problem

    def __str__(self) -> str:
        return f"the plan's {self.answer} {self.problem}"


class StuckStep(ProtocolError):
    """Nothing can happen any more and the step is open, or far too much happens.

    Attributes:
        step: The step.
        problem: Which of the two.
    """

    def __init__(self, step: int, problem: str) -> None:
        super().__init__(step, problem)
        self.step = step
        self.problem = problem

    def __str__(self) -> str:
        return f"step {self.step}: {self.problem}"


class Violation(CodedgradError, AssertionError):
    """A conformance suite has found a rule broken.

    Attributes:
        rule: The rule, in words.
        detail: Where, and what was found instead.
    """

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(rule, detail)
        self.rule = rule
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"
