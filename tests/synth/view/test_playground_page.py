"""The page of `pipesynth playground`: its sliders give the simulator's numbers."""

import random
from dataclasses import replace

import pytest

from synth import catalog
from synth.errors import UsageError
from synth.placement import parse_placement
from synth.problem import make_problem
from synth.simulate import peaks
from synth.view import payload, playground_page

FAMILIES = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "interleaved": "interleaved:{V}",
    "bfs": "bfs:{V}",
    "zb-h1": "zb-h1",
    "zb-h2": "zb-h2",
    "interleaved-zb": "interleaved-zb:{V}",
    "zb-v": "zb-v",
}
SET = """(values) => {
  for (const [name, value] of Object.entries(values)) {
    document.querySelector(`#controls [name="${name}"]`).value = value;
  }
  document.querySelector("#controls").dispatchEvent(new Event("input"));
  return window.pipesynth.results().map(({ family, reason, schedule, formula }) => ({
    name: family.name, reason, figures: schedule?.figures, formula,
    peaks: schedule && schedule.memory.peaks.map((p) => p / schedule.problem.quantaPerUnit),
  }));
}"""


def random_settings(seed):
    chance = random.Random(seed)
    tenths = [chance.randint(1, 30) / 10 for _ in range(3)]
    if seed % 3 == 0:
        tenths = [tenths[0]] * 3  # where most formulas hold
    devices = chance.randint(1, 8)
    return {
        "P": devices,
        "m": chance.randint(1, 4) * devices if seed % 2 else chance.randint(1, 24),
        "V": chance.randint(2, 4),
        "F": tenths[0],
        "B": tenths[1],
        "W": tenths[2],
        "c": chance.choice([0, 0, 0.1, 0.5]),
        "C": chance.choice([1, 0.4, 0]),
        "objective": chance.choice(["makespan", "span"]),
    }


def expected(name, settings):
    """The catalogue's schedule of the family, None where it refuses."""
    family = catalog.family(name.format(**settings))
    problem = make_problem(
        settings["P"],
        settings["m"],
        placement=parse_placement(family.placement, settings["P"]),
        costs=[str(settings[cost]) for cost in "FBW"],
        comm=str(settings["c"]),
        activation=("1", str(settings["C"])),
        objective=settings["objective"],
    )
    try:
        return catalog.build(family.name, problem), family
    except UsageError:
        return None, family


def check_family(found, name, settings):
    schedule, family = expected(name, settings)
    assert (found.get("reason") is None) == (schedule is not None), (name, settings)
    if schedule is None:
        return
    problem, units = schedule.problem, schedule.problem.units
    figures = found["figures"]
    assert figures["makespan"] == pytest.approx(units.ticks(schedule.makespan))
    assert figures["span"] == pytest.approx(units.ticks(schedule.span))
    assert figures["bubble"] == pytest.approx(schedule.bubble, abs=1e-9)
    assert figures["idle"] == pytest.approx(units.ticks(catalog.most_idle(schedule)), abs=1e-9)
    held = [units.quanta(peak) for peak in peaks(problem, schedule.devices)]
    assert found["peaks"] == pytest.approx(held)
    idle = family.predicted_idle(problem)
    assert found["formula"]["idle"] == (
        None if idle is None else pytest.approx(units.ticks(idle), abs=1e-9)
    )
    formula = family.peak.value(problem) if family.peak else None
    assert found["formula"]["peaks"] == (
        None if formula is None else pytest.approx([units.quanta(peak) for peak in formula])
    )


def test_sliders_give_the_numbers_of_the_simulator(open_page):
    page = open_page(playground_page([]))
    for seed in range(30):
        settings = random_settings(seed)
        results = page.evaluate(SET, settings)
        assert [result["name"] for result in results] == list(FAMILIES)
        for result, name in zip(results, FAMILIES.values(), strict=True):
            check_family(result, name, settings)


def test_moving_a_slider_redraws(open_page):
    page = open_page(playground_page([]))
    row = page.locator('#results tr[data-family="1f1b"]')
    assert row.inner_text().split("\t")[2] == "33"
    page.locator('[name="m"]').focus()
    page.keyboard.press("ArrowRight")
    assert row.inner_text().split("\t")[2] == "36"
    assert page.evaluate("window.pipesynth.timeline.schedules.length") == 3
    page.locator('#results tr[data-family="gpipe"] input').check()
    assert page.evaluate("window.pipesynth.timeline.schedules.length") == 4


def test_solved_schedules_stand_in_the_frontier(open_page):
    problem = make_problem(3, 6, memory=3)
    schedule = catalog.build("zb-h1", problem)
    twin = replace(schedule, problem=make_problem(3, 6, memory=4))
    page = open_page(playground_page([payload(schedule, "a/k3"), payload(twin, "a/k4")]))
    assert page.locator("#frontier .solved").count() == 0
    page.locator("#library").select_option(index=1)
    assert page.locator("#frontier .solved").count() == 2
    assert page.evaluate("window.pipesynth.settings().P") == 3
    page.locator('#results tr[data-family="a/k3"] input').check()
    assert "a/k3" in page.evaluate("window.pipesynth.timeline.schedules.map((s) => s.label)")
