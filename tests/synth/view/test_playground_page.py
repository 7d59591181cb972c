"""The page of `pipesynth playground`: its sliders give the simulator's numbers."""

import random
from dataclasses import replace

import pytest

from synth import catalog
from synth.errors import UsageError
from synth.placement import parse_placement
from synth.problem import make_problem
from synth.schedule import Certificate
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


def library():
    """Three solutions of one problem, of which one is proved, and one of a problem off the grid."""
    found = {}
    for memory, bound in ((3, 18), (4, 19), (5, 20)):
        problem = make_problem(3, 6, memory=memory)
        schedule = replace(catalog.build("zb-h1", problem), name="solved")
        value = schedule.certificate.value
        certificate = Certificate(value, bound, "fill: by hand")
        found[f"a/k{memory}"] = replace(schedule, certificate=certificate)
    fine = make_problem(2, 4, costs=("18.522", "18.086", "9.337"), comm="0.601", memory=2)
    found["fine"] = catalog.build("zb-h1", fine)
    return found


@pytest.fixture
def solved_page(open_page):
    shown = [payload(schedule, label) for label, schedule in library().items()]
    return open_page(playground_page(shown))


def point(page, chart, label):
    return page.locator(f'#{chart} [data-id="{label}"]')


def test_solved_schedules_stand_in_the_frontier(solved_page):
    page = solved_page
    assert page.locator("#frontier .proved, #frontier .open").count() == 0
    page.locator("#library").select_option(index=1)
    assert page.evaluate("window.pipesynth.settings().P") == 3
    proved = {
        label: schedule.certificate.optimal
        for label, schedule in library().items()
        if label != "fine"
    }
    assert set(proved.values()) == {True, False}
    for label, optimal in proved.items():
        assert optimal == ("proved" in point(page, "frontier", label).get_attribute("class"))
    page.locator('#results tr[data-family="a/k3"] input').check()
    assert "a/k3" in page.evaluate("window.pipesynth.timeline.schedules.map((s) => s.label)")


def test_points_lie_at_their_limit_and_bubble(solved_page):
    page = solved_page
    page.locator("#library").select_option(index=1)
    points = page.evaluate("window.pipesynth.frontier.points.map(({ id, x, y }) => [id, x, y])")
    found = {label: (x, y) for label, x, y in points}
    for label in ("a/k3", "a/k4", "a/k5"):
        schedule = library()[label]
        assert found[label] == pytest.approx((float(label[-1]), schedule.bubble))
    held = max(peaks(library()["a/k3"].problem, library()["a/k3"].devices))
    assert found["zb-h1"][0] == held  # a handcrafted one lies at the least limit that admits it


def test_every_file_has_a_point_and_leads_to_its_problem(solved_page):
    page = solved_page
    labels = [
        p.get_attribute("data-id") for p in page.locator("#files .proved, #files .open").all()
    ]
    assert sorted(labels) == sorted(library())
    point(page, "files", "fine").click()
    settings = page.evaluate("window.pipesynth.settings()")
    assert (settings["P"], settings["m"]) == (2, 4)
    assert settings["times"] == [18.522, 18.086, 9.337, 0.601, 1]
    assert "fine" in page.evaluate("window.pipesynth.timeline.schedules.map((s) => s.label)")
    # The page's own ZB-H1 has the times of the file, which holds the same.
    own = page.evaluate("window.pipesynth.results().find((r) => r.family.name === 'zb-h1')")
    units = library()["fine"].problem.units
    makespan = units.ticks(library()["fine"].makespan)
    assert own["schedule"]["figures"]["makespan"] == pytest.approx(makespan)


def test_hovering_a_point_names_its_file(solved_page):
    page = solved_page
    point(page, "files", "a/k4").hover()
    text = page.locator("#card").inner_text()
    assert text.startswith("a/k4.json")
    assert "P 3 m 6" in " ".join(text.split())
    page.mouse.move(700, 5)
    assert page.locator("#card").is_hidden()


def test_the_keyboard_goes_from_point_to_point(solved_page):
    page = solved_page
    page.locator("#library").select_option(index=1)
    start = page.evaluate("window.pipesynth.timeline.t0")
    page.locator('#frontier [tabindex="0"]').focus()
    names = set()
    for _ in range(page.evaluate("window.pipesynth.frontier.points.length")):
        names.add(page.evaluate("document.activeElement.dataset.id"))
        page.keyboard.press("ArrowRight")
    assert names >= {"a/k3", "a/k4", "a/k5", "1f1b", "zb-h1"}
    assert page.evaluate("window.pipesynth.timeline.t0") == start  # the timeline did not pan
    while page.evaluate("document.activeElement.dataset.id") != "a/k5":
        page.keyboard.press("ArrowRight")
    assert page.locator("#card").inner_text().startswith("a/k5.json")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.id") == "a/k5"  # drawn anew, not lost
    assert point(page, "frontier", "a/k5").get_attribute("aria-pressed") == "true"


def test_a_playground_without_a_library_has_one_chart(open_page):
    page = open_page(playground_page([]))
    assert page.locator("#every").is_hidden()
    assert page.locator("#frontier .crafted").count() == len(FAMILIES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_has_the_charts_and_not_the_sliders(open_page, scheme):
    shown = [payload(schedule, label) for label, schedule in library().items()]
    page = open_page(playground_page(shown), color_scheme=scheme)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#frontier").is_visible()
    assert page.locator("#files").is_visible()
    assert page.locator("#controls").is_hidden()
    assert page.locator("#asked").inner_text().startswith("P 4")
    mark = "getComputedStyle(document.querySelector('#frontier .crafted .mark')).fill"
    assert page.evaluate(mark) == "rgb(255, 255, 255)"
