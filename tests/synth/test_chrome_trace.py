"""The trace passes a checker of its own: whole times, nested slices, flows that bind, counters."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from synth import catalog
from synth.chrome_trace import dumps
from synth.measured import MeasuredOp, MeasuredStep
from synth.problem import make_problem
from synth.simulate import messages, peaks


def check(trace):
    """What Perfetto drops or ignores silently, as a list of complaints."""
    events = trace["traceEvents"]
    slices, flows, counters = defaultdict(list), defaultdict(list), defaultdict(list)
    found = []
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    for event in events:
        times = [event[key] for key in ("ts", "dur") if key in event]
        found += [f"not a whole time: {event}" for time in times if type(time) is not int]
        found += [f"negative: {event}" for time in times if time < 0]
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append(event)
        elif event["ph"] in "stf":
            flows[event["id"], event["cat"], event["name"]].append(event)
        elif event["ph"] == "C":
            counters[event["pid"], event["name"]].append(event)
    found += [f"thread without a name: {thread}" for thread in set(slices) - named]
    found += [f"process without a name: {pid}" for pid, _ in slices if pid not in processes]
    for row in slices.values():
        found += not_nested(row)
    for flow in flows.values():
        found += not_bound(flow, slices)
    for row in counters.values():
        found += [f"counter goes back: {b}" for a, b in pairwise(row) if b["ts"] <= a["ts"]]
    return found


def not_nested(row):
    open_until = []
    for event in sorted(row, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        end = event["ts"] + event["dur"]
        if open_until and end > open_until[-1]:
            yield f"overlaps the slice before it: {event}"
        open_until.append(end)


def not_bound(flow, slices):
    phases = [event["ph"] for event in flow]
    if phases != ["s", "f"]:
        yield f"flow is {phases}: {flow[0]}"
        return
    start, finish = flow
    if not isinstance(start["id"], int):
        yield f"id is not a whole number: {start}"
    if finish.get("bp") != "e":
        yield f"does not bind to the slice around it: {finish}"
    if finish["ts"] < start["ts"]:
        yield f"points back: {flow}"
    for event in flow:
        row = slices[event["pid"], event["tid"]]
        if not any(e["ts"] <= event["ts"] < e["ts"] + e["dur"] for e in row):
            yield f"binds to no slice: {event}"


def baseline(name, devices, microbatches, **costs):
    placement = catalog.family(name).placement
    return catalog.build(name, make_problem(devices, microbatches, placement=placement, **costs))


def measured(schedule, seconds_per_tick=1.1e-3):
    """A step that runs a tenth slower than planned at a millisecond per tick."""
    devices = tuple(
        tuple(
            MeasuredOp(t.op, t.start * seconds_per_tick, (t.end - 0.01) * seconds_per_tick)
            for t in ops
        )
        for ops in schedule.devices
    )
    makespan = schedule.makespan * 1e-3
    return MeasuredStep("run.json", 3, 10, 1.1 * makespan, makespan, devices)


CASES = [
    ("1f1b", {}),
    ("zb-h2", {"comm": "0.3"}),
    ("zb-v", {"costs": (1, 1, "0.7"), "comm": 3}),
    ("interleaved:2", {"comm": "0.001"}),
    ("dualpipe", {"comm": "0.5"}),
    ("chimera", {}),
]


@pytest.mark.parametrize(("name", "costs"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("with_run", [False, True])
def test_the_trace_is_sound(name, costs, with_run):
    schedule = baseline(name, 4, 8, **costs)
    trace = json.loads(dumps(schedule, measured(schedule) if with_run else None))
    assert check(trace) == []
    events = trace["traceEvents"]
    flows = [event for event in events if event["ph"] == "s"]
    assert len(flows) == messages(schedule.problem) * (1 + with_run)
    computed = [event for event in events if event.get("cat") == "compute"]
    assert len(computed) == sum(map(len, schedule.devices)) * (1 + with_run)


def test_planned_beside_measured():
    schedule = baseline("1f1b", 2, 4)
    events = json.loads(dumps(schedule, measured(schedule)))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    assert [names[pid] for pid in sorted(names, key=order.__getitem__)] == [
        "device 0, planned",
        "device 0, measured",
        "device 1, planned",
        "device 1, measured",
    ]
    last = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X" and e["pid"] == 0)
    assert last == 1000 * schedule.makespan  # the run planned a millisecond per tick


def test_transfers_are_slices_on_both_ends():
    schedule = baseline("1f1b", 2, 2, comm=2)
    events = json.loads(dumps(schedule))["traceEvents"]
    sends = [e for e in events if e.get("cat") == "send"]
    receives = [e for e in events if e.get("cat") == "receive"]
    assert len(sends) == len(receives) == messages(schedule.problem) == 4
    first = min(sends, key=lambda e: e["ts"])
    assert (first["name"], first["pid"], first["ts"], first["dur"]) == ("send F 0", 0, 1000, 2000)
    assert first["args"] == {"op": "F0@0", "for": "F0@1", "from": 0, "to": 1}
    lanes = {e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0}
    assert lanes == {"compute", "send", "send 2", "receive"}  # both F's are under way at once


def test_memory_is_counted():
    schedule = baseline("zb-h1", 4, 8)
    events = json.loads(dumps(schedule))["traceEvents"]
    most = [
        max(e["args"]["activations"] for e in events if e["ph"] == "C" and e["pid"] == device)
        for device in range(4)
    ]
    assert tuple(most) == peaks(schedule.problem, schedule.devices)


def test_names_group_by_kind():
    schedule = baseline("dualpipe", 4, 8)
    events = json.loads(dumps(schedule))["traceEvents"]
    names = {"".join(c for c in e["name"] if not c.isdigit()) for e in events if e["ph"] == "X"}
    assert names == {"F ", "B ", "W ", "BW ", "F  + BW "}


def test_the_checker_sees_what_is_wrong():
    trace = json.loads(dumps(baseline("1f1b", 2, 4)))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    slices[0]["dur"] += 1
    finish = next(event for event in trace["traceEvents"] if event["ph"] == "f")
    finish["ts"] -= 0.5
    complaints = " ".join(check(trace))
    assert "overlaps" in complaints
    assert "whole time" in complaints
