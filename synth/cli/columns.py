"""The columns of `pipesynth compare` for people: which are shown, how wide, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from synth.cli.output import percent, table
from synth.cli.rows import Line

WIDTH = 100
_NAMES = (24, 16)  # letters that are left of a long name; fewer where the table is too wide
_NARROWED = ("parameters", "messages", "of plan", "span", "gap", "bytes")  # dropped in this order

Value = int | float | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: what `--sort` calls it, its header, what it sorts by, and its text in a cell.

    `optional` columns are shown only where some row has a value.
    """

    key: str
    header: str
    value: Callable[[Line], Value]
    text: Callable[[Line], str]
    optional: bool = False


def _of_summary(name: str) -> Callable[[Line], Value]:
    def value(line: Line) -> Value:
        found: Value = getattr(line.row.summary, name, None)
        return found

    return value


def _peak(line: Line) -> Value:
    return None if line.row.summary is None else max(line.row.summary.peak_memory)


def _formula(line: Line) -> float | None:
    return None if line.row.claims is None else line.row.claims.predicted_bubble


def _formula_text(line: Line) -> str:
    share, claims = _formula(line), line.row.claims
    if share is None or claims is None:
        return f"{'-':>5}"
    return f"{percent(share):>5} {'=' if claims.agrees else '!'}"


def short(value: Value) -> str:
    """A number in six digits or, if larger, without decimals; a dash for none."""
    if value is None or isinstance(value, str):
        return value or "-"
    whole = len(str(int(abs(value))))
    text = f"{value:.{max(0, min(4, 6 - whole))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _figure(
    key: str, header: str, value: Callable[[Line], Value], *, optional: bool = False
) -> Column:
    return Column(key, header, value, lambda line: short(value(line)), optional)


def _mebibytes(line: Line) -> float | None:
    return None if line.row.sent_bytes is None else line.row.sent_bytes / 2**20


def _share(key: str, value: Callable[[Line], Value]) -> Column:
    def text(line: Line) -> str:
        share = value(line)
        return "-" if share is None or isinstance(share, str) else percent(share)

    return Column(key, key, value, text)


def _factor(line: Line) -> str:
    factor = _of_summary("parameters")(line)
    return "-" if factor is None else f"{short(factor)}x"


def _step_text(line: Line) -> str:
    return "-" if line.measured_s is None else f"{1e3 * line.measured_s:.1f}"


COLUMNS = (
    Column("schedule", "schedule", lambda line: line.row.name, lambda line: line.row.name),
    _figure("makespan", "makespan", _of_summary("makespan")),
    _figure("span", "span", _of_summary("span")),
    _share("bubble", _of_summary("bubble")),
    Column("formula", "formula", _formula, _formula_text),
    _figure("peak", "peak", _peak),
    Column("parameters", "params", _of_summary("parameters"), _factor),
    _figure("messages", "msgs", _of_summary("messages")),
    _figure("bytes", "MiB", _mebibytes, optional=True),
    _share("gap", lambda line: line.row.gap),
    Column("measured", "step ms", lambda line: line.measured_s, _step_text, optional=True),
    _figure("of plan", "of plan", lambda line: line.of_plan, optional=True),
    Column(
        "valid",
        "valid",
        lambda line: int(not line.row.valid),
        lambda line: "yes" if line.row.valid else "no",
    ),
    Column(
        "sync",
        "sync",
        lambda line: None if line.synchronous else "no",
        lambda line: "yes" if line.synchronous else "no",
        optional=True,
    ),
)


def ordered(lines: Sequence[Line], key: str | None) -> list[Line]:
    """The rows by a column, the least first; those without a value last."""
    if key is None:
        return list(lines)
    value = next(column.value for column in COLUMNS if column.key == key)

    def rank(line: Line) -> tuple[bool, Value]:
        found = value(line)
        return found is None, 0 if found is None else found

    return sorted(lines, key=rank)


def shown(lines: Sequence[Line]) -> list[Column]:
    """The columns in which some row has something to say."""
    return [
        column
        for column in COLUMNS
        if not column.optional or any(column.value(line) is not None for line in lines)
    ]


def as_text(lines: Sequence[Line]) -> str:
    """The table and its notes, no line wider than WIDTH."""
    text, dropped = _narrowed(lines)
    notes = [f"{_elided(line.row.name, _NAMES[0])}: {n}" for line in lines for n in _notes(line)]
    if dropped:
        notes.append(f"no room for {', '.join(dropped)}: --json, --csv and --markdown have all")
    notes += _legend(lines)
    wrapped = [part for note in notes for part in wrap(note, WIDTH, subsequent_indent="  ")]
    return "\n".join([text, *([""] if wrapped else []), *wrapped])


def _narrowed(lines: Sequence[Line]) -> tuple[str, list[str]]:
    """The table with shorter names and fewer columns until it fits, and the headers of the rest."""
    columns, dropped = shown(lines), []
    text = ""
    for key in (None, *_NARROWED):
        dropped += [column.header for column in columns if column.key == key]
        columns = [column for column in columns if column.key != key]
        for longest in _NAMES:
            text = _table(columns, lines, longest)
            if max(map(len, text.splitlines())) <= WIDTH:
                return text, dropped
    return text, dropped


def _table(columns: Sequence[Column], lines: Sequence[Line], longest: int) -> str:
    cells = [[_elided(column.text(line), longest) for column in columns] for line in lines]
    return table([column.header for column in columns], cells)


def _elided(name: str, longest: int) -> str:
    """A long path without its beginning."""
    return name if len(name) <= longest else "..." + name[3 - longest :]


def as_markdown(lines: Sequence[Line]) -> str:
    """All columns, and the notes as a list."""
    columns = shown(lines)
    headers = [column.header for column in columns]
    rows = table(
        headers, [[c.text(line).strip() for c in columns] for line in lines], markdown=True
    )
    notes = [f"- `{line.row.name}`: {note}" for line in lines for note in _notes(line)]
    notes += [f"- {note}" for note in _legend(lines)]
    return "\n".join([rows, *([""] if notes else []), *notes])


def _notes(line: Line) -> Iterator[str]:
    """Why a row is not valid, where a formula misses, and what asynchronous training changes."""
    row, claims = line.row, line.row.claims
    if row.reason:
        yield row.reason
    if claims is None:
        return
    if claims.agrees is False:
        predicted, found = short(claims.predicted_idle), short(claims.found_idle)
        yield f"the formula says {predicted} idle, the simulator finds {found}"
    if not claims.synchronous:
        steady = "" if claims.steady is None else f"; {short(claims.steady)} per step once full"
        versions = claims.weight_versions or ()
        copies = f"; up to {max(versions)} versions of the weights" if versions else ""
        yield f"sync: no, {claims.note}{steady}{copies}"


def _legend(lines: Sequence[Line]) -> list[str]:
    if all(_formula(line) is None for line in lines):
        return []
    return [
        "formula: the closed form of the bubble; = where the simulator agrees to a tick, ! if not"
    ]
