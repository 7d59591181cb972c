"""The exception tree. Each class carries the exit code of the command contract.

PipesynthError
├── UsageError            2  what was asked for makes no sense or cannot be read
│   ├── ProblemError      2  a problem that breaks a rule of its own
│   └── FileError         2  a file that is missing, damaged or of another version
├── AnswerNoError         1  the question was fine and the answer is no
│   ├── InfeasibleError   1  no schedule exists within the limits
│   └── InvalidScheduleError  1  a schedule that breaks a rule (dependencies, memory, deadlock)
└── NothingFoundError     3  nothing found in the time given
"""


class PipesynthError(Exception):
    """Base of every error that pipesynth raises on purpose; its text is one line."""

    exit_code = 2


class UsageError(PipesynthError):
    """The request makes no sense or its input cannot be read."""


class ProblemError(UsageError):
    """A problem breaks one of its own rules."""


class FileError(UsageError):
    """A file is missing, damaged, of another version, or cannot be written."""


class AnswerNoError(PipesynthError):
    """The request was fine and the answer is no."""

    exit_code = 1


class InfeasibleError(AnswerNoError):
    """No schedule exists within the stated limits."""


class InvalidScheduleError(AnswerNoError):
    """A schedule or program breaks a rule."""


class NothingFoundError(PipesynthError):
    """The time given ended before anything was found."""

    exit_code = 3
