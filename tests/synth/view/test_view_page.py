"""The page of `pipesynth view`, opened in a browser."""

import random
from dataclasses import replace

import pytest

from synth import catalog
from synth.measured import MeasuredOp, MeasuredStep
from synth.problem import DeviceCost, Link, Problem, StageCost, Stream, make_problem
from synth.schedule import Certificate, Schedule, TimedOp, value
from synth.simulate import memory_profile, peaks, retime
from synth.solve.listing import one_by_one
from synth.view import payload, view_page


def baseline(name, devices, microbatches, **costs):
    placement = catalog.family(name).placement
    return catalog.build(name, make_problem(devices, microbatches, placement=placement, **costs))


@pytest.fixture(scope="module")
def schedules():
    return [
        baseline("1f1b", 4, 8, comm="0.25", memory=4),
        baseline("zb-v", 4, 8, costs=(1, 2, 1)),
        baseline("dualpipe", 4, 8, comm="0.5"),
    ]


@pytest.fixture
def page(open_page, schedules):
    return open_page(view_page([payload(s, s.name) for s in schedules], "three"))


def hover(page, index, op):
    """Move the mouse to the middle of an op's cell and return the card's text."""
    at = page.evaluate(
        """([index, name]) => {
          const { timeline, schedules } = window.pipesynth;
          const schedule = schedules[index];
          for (let op = 0; op < schedule.ops.count; op++) {
            if (schedule.name(op) !== name) continue;
            timeline.select(schedule, op);
            const { x, y, width, height } = timeline.box(schedule, op);
            const { left, top } = timeline.host.getBoundingClientRect();
            return [left + x + width / 2, top + y + height / 2];
          }
        }""",
        [index, str(op)],
    )
    page.mouse.move(*at)
    page.wait_for_timeout(30)
    return page.locator("#card").inner_text()


def test_hover_shows_the_right_op(page, schedules):
    chance = random.Random(1)
    for index, schedule in enumerate(schedules):
        units = schedule.problem.units
        for _ in range(6):
            device = chance.randrange(4)
            timed = chance.choice(schedule.devices[device])
            text = hover(page, index, timed.op)
            assert text.splitlines()[0] == str(timed.op)
            start, end, length = (
                f"{units.ticks(tick):.6g}"
                for tick in (timed.start, timed.end, timed.end - timed.start)
            )
            assert f"{start} \u2013 {end} ({length})" in text
            assert f"device {device}" in text


def test_binding_predecessor(page, schedules):
    # Device 1 of 1F1B waits for a hop of 0.25, then runs without a gap up to its first backward.
    assert "F0@0 on 0, its input" in hover(page, 0, schedules[0].devices[1][0].op)
    assert "F0@0, the op before it here" in hover(page, 0, schedules[0].devices[0][1].op)
    assert "BW0@1 on 1, its input" in hover(page, 0, schedules[0].devices[0][4].op)
    assert "nothing" in hover(page, 0, schedules[0].devices[0][0].op)


def test_memory_is_that_of_the_simulator(page, schedules):
    for index, schedule in enumerate(schedules):
        found = page.evaluate("index => window.pipesynth.schedules[index].memory.peaks", index)
        assert tuple(found) == peaks(schedule.problem, schedule.devices)
        during = page.evaluate(
            "index => [...window.pipesynth.schedules[index].memory.during]", index
        )
        held = [
            [p.held for p in memory_profile(schedule.problem, ops) if p.tick <= timed.start][-1]
            for ops in schedule.devices
            for timed in ops
        ]
        assert during == held


def test_a_join_on_uneven_devices_and_links(open_page):
    """Device 2 waits for both inputs, the later one through the slower device or link."""
    cost = StageCost(1, 1, 1, 2, 3, 1, 1)
    problem = Problem(
        3,
        "explicit",
        (cost,) * 3,
        (Stream("", 2, (0, 1, 2)),),
        needs=((), (), (0, 1)),
        device_costs=(DeviceCost(1, 1, StageCost(2, 2, 2, 4, 6, 3, 1)),),
        links=(Link(2, 0, 5),),
    )
    timeline = retime(problem, one_by_one(problem))
    reached = value(timeline, problem.objective)
    schedule = Schedule("join", problem, timeline, Certificate(reached, 0, "none"))
    page = open_page(view_page([payload(schedule, "join")], "one"))
    assert "F0@1 on 1, its input" in hover(page, 0, schedule.devices[2][0].op)
    # The slow link explains all of the wait: no time is left over.
    assert "bound by\nB0@2 on 2, its input\n" in hover(page, 0, schedule.devices[0][1].op)
    found = page.evaluate("window.pipesynth.schedules[0].memory.peaks")
    assert tuple(found) == peaks(problem, timeline) == (1, 3, 1)


def test_figures_are_in_the_table(page, schedules):
    rows = page.locator("#figures tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == [s.name for s in schedules]
    assert rows[0].split("\t")[4] == f"{schedules[0].problem.units.ticks(37 * 4):g}"


def test_keyboard_walks_from_op_to_op(page):
    page.keyboard.press("/")
    page.keyboard.type("BW0@1")
    page.keyboard.press("Enter")
    card = page.locator("#card")
    assert card.inner_text().startswith("BW0@1")
    page.keyboard.press("p")
    assert card.inner_text().startswith("BW0@2")
    page.keyboard.press("ArrowRight")
    assert card.inner_text().startswith("F2@2")
    page.keyboard.press("Escape")
    assert card.is_hidden()


def test_zoom_and_pan_stay_within_the_schedule(page):
    span = page.evaluate("window.pipesynth.timeline.span")
    for key in ("w", "w", "d"):
        page.keyboard.press(key)
    assert page.evaluate("window.pipesynth.timeline.span") == pytest.approx(span / 1.96)
    assert page.evaluate("window.pipesynth.timeline.t0") > 0
    for _ in range(40):
        page.keyboard.press("d")
    last = page.evaluate("(({ t0, span, total }) => t0 + span - total)(window.pipesynth.timeline)")
    assert last < 0.2 * span
    page.keyboard.press("0")
    assert page.evaluate("window.pipesynth.timeline.t0") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_is_painted_in_its_colour(open_page, schedules, scheme):
    page = open_page(view_page([payload(schedules[2], "d")], "d"), color_scheme=scheme)
    found = page.evaluate(
        """() => {
          const { timeline, schedules: [schedule] } = window.pipesynth;
          timeline.draw(1);
          const { width, height } = timeline.base;
          const { data } = timeline.base.getContext("2d").getImageData(0, 0, width, height);
          const seen = {};
          for (let op = 0; op < schedule.ops.count; op++) {
            const box = timeline.box(schedule, op);
            const at = 4 * ((Math.round(box.y) + box.height - 2) * width + Math.round(box.x) + 3);
            const kind = schedule.ops.kind[op];
            (seen[kind] ||= new Set()).add(data.slice(at, at + 3).join(" "));
          }
          return Object.fromEntries(Object.entries(seen).map(([k, v]) => [k, [...v]]));
        }"""
    )
    assert sorted(found) == ["0", "1", "2", "3", "4"]
    assert all(len(colours) == 1 for colours in found.values())
    forward, act, wgt, fused, pair = (found[kind][0] for kind in "01234")
    assert len({forward, act, wgt}) == 3
    assert (fused, pair) == (wgt, wgt)  # a full backward stands on a W, and a pair on one of those


def test_an_invalid_schedule_is_shown_with_its_violations(open_page, schedules):
    first, *rest = schedules[0].devices
    moved = (TimedOp(first[0].op, 50 * 4, 51 * 4), *first[1:])
    broken = replace(schedules[0], devices=(moved, *rest))
    page = open_page(view_page([payload(broken, "broken")], "broken"))
    assert "invalid" in page.locator("#figures").inner_text()


def test_text_cannot_leave_the_data(open_page, schedules):
    named = replace(schedules[0], name="</script><script>console.log(1)</script>")
    page = open_page(view_page([payload(named, named.name)], named.name))
    assert page.locator("#figures tbody td").first.inner_text() == named.name


def measured(schedule, seconds=2e-3):
    """Every op a tenth longer than planned, at so many seconds per tick."""
    devices = tuple(
        tuple(
            MeasuredOp(t.op, 1.1 * t.start * seconds, (1.1 * t.end - 0.01) * seconds) for t in ops
        )
        for ops in schedule.devices
    )
    plan = schedule.makespan * seconds
    return MeasuredStep("run.json", 4, 9, 1.1 * plan, plan, devices)


def test_measured_under_planned(open_page, schedules):
    page = open_page(view_page([payload(schedules[1], "zb-v", measured(schedules[1]))], "zb-v"))
    op = schedules[1].devices[2][5].op
    assert "\nmeasured\n" in hover(page, 0, op)
    at = page.evaluate(
        """name => {
          const { timeline, schedules: [schedule] } = window.pipesynth;
          const { ops } = schedule.measured;
          const { streams } = schedule.problem;
          const op = [...ops.kind.keys()].find((at) => ops.name(at, streams) === name);
          const { top } = timeline.panels[0].rows[ops.device[op]].measured;
          const brush = timeline.brush(null, schedule, 0);
          const { left, top: up } = timeline.host.getBoundingClientRect();
          const middle = brush.exact((ops.start[op] + ops.end[op]) / 2) / timeline.ratio;
          return [left + middle, up + top + 5];
        }""",
        str(op),
    )
    page.mouse.move(*at)
    text = page.locator("#card").inner_text()
    assert text.startswith(f"{op} measured")
    assert "behind plan" in text
    page.keyboard.press("m")
    assert page.evaluate("window.pipesynth.timeline.panels[0].rows[0].measured.height") == 0


def test_following_a_micro_batch_fades_the_others(page):
    page.keyboard.press("f")
    page.evaluate("window.pipesynth.timeline.select(window.pipesynth.schedules[0], 4)")
    page.wait_for_timeout(50)
    inked = page.evaluate(
        """() => {
          const { timeline, schedules: [schedule] } = window.pipesynth;
          const { width, height } = timeline.over;
          const { data } = timeline.over.getContext("2d").getImageData(0, 0, width, height);
          return [...schedule.ops.kind.keys()].map((op) => {
            const box = timeline.box(schedule, op);
            const x = Math.round(box.x + box.width / 2);
            return data[4 * ((Math.round(box.y) + 3) * width + x) + 3] === 255;
          }).map((full, op) => full === (schedule.ops.microbatch[op] === 0));
        }"""
    )
    assert sum(inked) > 0.8 * len(inked)  # arrows cross some of the others


def test_paper_gets_every_schedule_in_light_colours(open_page, schedules):
    page = open_page(
        view_page([payload(s, s.name) for s in schedules], "three"), color_scheme="dark"
    )
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    corners = page.evaluate(
        """() => [...document.querySelectorAll("#pictures canvas")].map((canvas) =>
          canvas.getContext("2d").getImageData(0, 0, 1, 1).data.join(" "))"""
    )
    assert corners == ["255 255 255 255"] * 3
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#pictures canvas").count() == 0


@pytest.mark.slow
def test_a_hundred_thousand_ops_pan_in_time(open_page):
    schedule = baseline("zb-h1", 16, 2084)
    count = sum(map(len, schedule.devices))
    assert count > 100_000
    page = open_page(view_page([payload(schedule, "large")], "large"))
    # The best of many: what the page takes, not what else the machine was doing meanwhile.
    times = page.evaluate(
        """() => {
          const { timeline } = window.pipesynth;
          return [1, 0.3, 0.1, 0.03, 0.01, 0.001].map((share) => {
            timeline.moveTo(0.4 * timeline.total, share * timeline.total);
            return Math.min(...Array.from({ length: 12 }, () => {
              timeline.pan(40);
              const begin = performance.now();
              timeline.draw();
              return performance.now() - begin;
            }));
          });
        }"""
    )
    assert max(times) < 100, times
