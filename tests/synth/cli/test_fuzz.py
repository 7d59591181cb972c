"""Whatever is in a file, a command answers with an exit code and at most one line of error."""

import contextlib
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synth.cli import main

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["F0@0", "B1@1", "W0@1", "BW0@0", "F1@0+BW0@0", "F0@0/up", "span", "linear"]),
    st.just([]),
    st.just({}),
)


def places(node, path=()):
    """The path of every value in a document."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in items:
        if isinstance(child, (dict, list)):
            yield from places(child, (*path, key))
        else:
            yield (*path, key)


def change(document, path, value, operation):
    """Replace, remove or repeat the value at a path."""
    *parents, last = path
    holder = document
    for key in parents:
        holder = holder[key]
    if operation == "replace":
        holder[last] = value
    elif operation == "remove":
        del holder[last]
    elif isinstance(holder, list):
        holder.insert(last, holder[last])


def answer(*arguments):
    """Exit code and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, err.getvalue()


@pytest.mark.parametrize(
    "verb", ["verify", "show", "explain", "export --to program", "compare 1f1b"]
)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_changed_files(schedule_file, verb, data):
    document = json.loads(schedule_file.read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in places(document) if path]))
        operation = data.draw(st.sampled_from(["replace", "remove", "repeat"]))
        change(document, path, data.draw(VALUES), operation)
    changed = schedule_file.with_name("changed.json")
    changed.write_text(json.dumps(document))
    code, err = answer(*verb.split(), changed)
    assert code in (0, 1, 2)
    refusing = verb.startswith(("explain", "export"))
    assert err.count("\n") == (code == 2 or (code == 1 and refusing))


ODD = ["nan", "inf", "-1", "0", "1e300", "1e-300", "x", "", "1_0", "0x1", "99999999999999999999"]
NUMBERS = st.one_of(
    st.integers(1, 9).map(str),
    st.decimals("0.001", "99", places=3).map(str),
    st.fractions(1, 9, max_denominator=7).map(lambda f: f"{float(f):.9f}"),
)


def numbers(least, most):
    """A list of sensible numbers, in one case of four with an odd one among them."""
    sensible = st.lists(NUMBERS, min_size=least, max_size=most)
    odd = st.tuples(sensible, st.sampled_from(ODD)).map(lambda both: [*both[0][1:], both[1]])
    return st.one_of(sensible, sensible, sensible, odd).map(",".join)


@pytest.mark.parametrize(
    "verb", ["graph", "baseline gpipe", "baseline zb-h2", "compare 1f1b zb-h1"]
)
@settings(max_examples=100, deadline=None)
@given(
    devices=st.integers(0, 6),
    microbatches=st.integers(0, 9),
    costs=numbers(3, 4),
    activation=numbers(2, 2),
    memory=st.one_of(st.none(), numbers(1, 1)),
    objective=st.sampled_from(["makespan", "span"]),
)
def test_numbers_of_every_kind(verb, devices, microbatches, costs, activation, memory, objective):
    arguments = [*verb.split(), f"-P{devices}", f"-m{microbatches}", f"--objective={objective}"]
    arguments += [f"--costs={costs}", f"--activation={activation}"]
    code, err = answer(*arguments, *([] if memory is None else [f"--memory={memory}"]))
    assert code in (0, 1, 2)
    assert err.count("\n") == (code != 0)
