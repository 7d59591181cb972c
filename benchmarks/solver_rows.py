"""The problems that `solver.py` solves, with the values published for them.

"exact" stands for the best value of an exact solver where the reference has one, which its authors
could not always prove. Limits are in activation units unless a row says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from synth.placement import parse_placement
from synth.problem import Objective, Problem, StageCost, Units, make_problem, share_out

UNITS = Units()


@dataclass(frozen=True, slots=True)
class Row:
    """A problem; `target` is what is published, a bubble rate where `rate` and else a value.

    `note` says whose it is. With `medians` the target is found by solving for the median costs.
    """

    name: str
    problem: Problem
    target: float | None = None
    note: str = ""
    rate: bool = False
    medians: bool = False


def tight() -> Iterator[Row]:
    """Unit costs, activation counted from F to B, span."""
    known = {4: 103, 5: 87, 6: 81, 7: 80, 8: 79, 12: 75, 15: 72, 2: 212, 3: 137}
    for limit in range(1, 16):
        problem = make_problem(8, 24, activation=(1, 0), memory=limit, objective="span")
        yield Row(f"P=8 m=24 limit {limit}", problem, known.get(limit), "best known")
    problem = make_problem(16, 48, activation=(1, 0), memory=12, objective="span")
    yield Row("P=16 m=48 limit 12", problem)


def unit() -> Iterator[Row]:
    """Unit costs, span, at the memory of 1F1B and of ZB-H2."""
    for devices, count in ((4, 8), (8, 32), (16, 64), (32, 128), (32, 256), (64, 256), (64, 512)):
        for limit, target, name in (
            (devices, 3 * count + devices - 1, "ZB-H1"),
            (2 * devices - 1, 3 * count, "ZB-H2"),
        ):
            problem = make_problem(devices, count, memory=limit, objective="span")
            yield Row(f"P={devices} m={count} limit {limit}", problem, target, name)


_RATIOS = {
    "1.5B": 73728 / 201216,
    "6.2B": 131072 / 303104,
    "14.6B": 163840 / 378880,
    "28.3B": 196608 / 454656,
}
_ZERO_BUBBLE = """
1.5B 8 24 18.522 18.086 9.337 0.601 .1585 .0433
1.5B 8 32 18.513 18.086 9.331 0.626 .1242 .0039
1.5B 8 64 18.546 18.097 9.321 0.762 .0674 .0026
6.2B 8 24 29.718 29.444 19.927 0.527 .1323 .0029
6.2B 8 32 29.802 29.428 19.530 0.577 .1045 .0022
6.2B 8 64 29.935 29.621 19.388 0.535 .0554 .0010
14.6B 16 48 11.347 11.248 8.132 0.377 .1397 .0066
14.6B 16 64 11.307 11.254 8.101 0.379 .1088 .0054
14.6B 16 128 11.325 11.308 8.109 0.378 .0576 .0028
28.3B 32 96 10.419 10.207 7.715 0.408 .1421 .0038
28.3B 32 128 10.408 10.204 7.703 0.408 .1106 .0029
28.3B 32 256 10.402 10.248 7.698 0.460 .0594 .0018
"""


def zero_bubble() -> Iterator[Row]:
    """Profiled costs of Qi et al. 2024 (tables 3, 5 and 9): bubble rates of ZB-1p and ZB-2p."""
    for line in _ZERO_BUBBLE.strip().splitlines():
        model, devices, count, forward, act, wgt, comm, once, twice = line.split()
        for share, target in ((1, once), (2, twice)):
            problem = make_problem(
                int(devices),
                int(count),
                costs=(forward, act, wgt),
                comm=comm,
                activation=(1, f"{_RATIOS[model]:.4f}"),
                memory=share * int(devices),
                objective="span",
            )
            name = f"{model} P={devices} m={count} {share}x"
            yield Row(name, problem, float(target), f"ZB-{share}p", rate=True)


_ZB_V = """
6.2B 16 48 14407 14380 9676 1610 .0697
6.2B 16 64 14412 14393 9688 1621 .0533
6.2B 16 128 14316 14306 9639 1619 .0274
14.6B 24 72 6763 6969 5251 755 .0638
14.6B 24 96 6783 6984 5259 758 .0483
14.6B 24 192 6785 6990 5260 770 .0250
28.3B 32 96 9458 9748 7288 879 .0593
28.3B 32 128 9469 9744 7306 892 .0451
28.3B 32 256 9447 9644 7193 887 .0236
"""


def zb_v() -> Iterator[Row]:
    """Profiled costs per chunk of Qi et al. 2024 (table 8): bubble rates of ZB-V, span."""
    for line in _ZB_V.strip().splitlines():
        model, devices, count, *times, comm, target = line.split()
        problem = make_problem(
            int(devices),
            int(count),
            placement="v",
            costs=[2 * int(time) for time in times],
            comm=comm,
            activation=(1, f"{_RATIOS[model]:.4f}"),
            memory=int(devices),
            objective="span",
        )
        yield Row(f"{model} P={devices} m={count}", problem, float(target), "ZB-V", rate=True)


_Times = Sequence[tuple[int, int, int]]
_C4 = {
    4: [(11, 12, 11), (11, 11, 10), (8, 11, 12), (10, 10, 9)],
    8: [
        *((12, 13, 10), (9, 12, 11), (10, 9, 12), (9, 10, 8)),
        *((8, 8, 10), (12, 13, 11), (10, 8, 10), (12, 13, 12)),
    ],
}
_EXACT = {
    ("C1", 4): (326, 282, 270, 270),
    ("C2", 4): (374, 318, 284, 279),
    ("C3", 4): (510, 510, 510, 510),
    ("C4", 4): (364, 316, 290, 282),
    ("C5", 4): (431, 367, 351, 341),
    ("C1", 8): (656, 578, 550, 550),
    ("C2", 8): (774, 662, 588, 571),
    ("C3", 8): (1030, 1030, 1030, 1030),
    ("C4", 8): (735, 677, 676, 676),
    ("C5", 8): (951, 763, 729, 709),
}
_COMM = {"C1": 0, "C2": 3, "C3": 0, "C4": 2, "C5": 1}


def _stages(case: str, devices: int) -> _Times:
    if case == "C3":
        return [(10, 10, 10)] * (devices - 1) + [(20, 20, 20)]
    if case == "C4":
        return _C4[devices]
    return [(10, 20, 5) if case == "C5" else (10, 12, 8)] * devices


def staged(
    times: _Times,
    held: Sequence[tuple[int, int]],
    count: int,
    comm: int,
    limit: int,
    objective: Objective,
    units: Units = UNITS,
) -> Problem:
    """A straight pipe whose stages differ."""
    devices = len(times)
    stages = [
        StageCost(f, b, w, b + w, f + b + w, activation, context)
        for (f, b, w), (activation, context) in zip(times, held, strict=True)
    ]
    return Problem(
        devices=devices,
        placement="linear",
        stages=tuple(stages),
        streams=share_out(parse_placement("linear", devices), count),
        comm_ticks=comm,
        limits_quanta=(limit,) * devices,
        objective=objective,
        units=units,
    )


def costs() -> Iterator[Row]:
    """Five cost cases, activation held until W, makespan."""
    for (case, devices), targets in _EXACT.items():
        for quarters, target in zip((3, 4, 6, 8), targets, strict=True):
            limit, count = devices * quarters // 4, 2 * devices
            held = [(1, 1)] * devices
            problem = staged(
                _stages(case, devices), held, count, _COMM[case], limit, Objective.MAKESPAN
            )
            yield Row(f"{case} P={devices} m={count} limit {limit}", problem, target, "exact")


def v() -> Iterator[Row]:
    """V placement, makespan; the limit in chunks, two of which are an activation unit."""
    unit_rows = [
        *((4, 8, 4, 29.5, "exact"), (4, 8, 6, 26.5, "exact"), (4, 8, 8, 25.5, "exact")),
        *((8, 16, 8, 59.5, "search"), (8, 16, 11, 55, "search"), (8, 16, 16, 51.5, "search")),
        *((8, 24, 8, 83.5, "search"), (8, 24, 10, 80.5, "V-Half")),
        *((8, 24, 11, 79, "search"), (8, 24, 16, 75.5, "search")),
    ]
    for devices, count, chunks, target, note in unit_rows:
        problem = make_problem(devices, count, placement="v", memory=f"{chunks / 2}")
        yield Row(f"unit P={devices} m={count} limit {chunks} chunks", problem, target, note)
    cases = {"F10 B12 W8 hop 3": ((20, 24, 16), 3), "F10 B20 W5 hop 1": ((20, 40, 10), 1)}
    known = {
        ("F10 B12 W8 hop 3", 4): (720, 604, 547),
        ("F10 B20 W5 hop 1", 4): (890, 703, 657),
        ("F10 B12 W8 hop 3", 8): (1528, 1240, 1125),
        ("F10 B20 W5 hop 1", 8): (2097, 1579, 1370),
    }
    for (name, devices), targets in known.items():
        times, comm = cases[name]
        for quarters, target in zip((4, 6, 8), targets, strict=True):
            chunks, count = devices * quarters // 4, 2 * devices
            problem = make_problem(
                devices, count, placement="v", costs=times, comm=comm, memory=f"{chunks / 2}"
            )
            yield Row(
                f"{name} P={devices} m={count} limit {chunks} chunks", problem, target, "exact"
            )


def bidirectional() -> Iterator[Row]:
    """Unit costs, two replicas, makespan."""
    for devices, count, limit, target, note in (
        *((4, 8, 3, 27, "best known"), (4, 8, 4, 25, "best known"), (4, 8, 5, 25, "best known")),
        (8, 16, 8, 51, "best known; DualPipe 54 at limit 9"),
    ):
        problem = make_problem(devices, count, placement="bidirectional", memory=limit)
        yield Row(f"P={devices} m={count} limit {limit}", problem, target, note)


def head() -> Iterator[Row]:
    """A profile with a heavy last stage (ms and MB), against solving for its median costs."""
    forward = (30715, 29233, 29106, 29078, 28850, 28919, 28924, 41678)
    act = (31308, 29344, 29357, 29455, 29217, 29384, 29354, 38731)
    wgt = (18746, 18789, 19062, 19367, 19455, 19967, 20096, 32833)
    held = [(943, 410), *[(1240, 552)] * 6, (1071, 483)]
    times = list(zip(forward, act, wgt, strict=True))
    for share in (1, 2):
        problem = staged(
            times, held, 32, 473, share * 8 * 1240, Objective.SPAN, Units("ms", 1000, "MB", 1)
        )
        yield Row(f"P=8 m=32 {share}x", problem, None, "by medians", medians=True)


GROUPS = {
    "tight": tight,
    "unit": unit,
    "zero-bubble": zero_bubble,
    "zb-v": zb_v,
    "costs": costs,
    "v": v,
    "bidirectional": bidirectional,
    "head": head,
}
