"""Bad input of every sort: one line that says what and where, the right exit code, no file left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": ""}


def assert_refused(result, code, text, folder=None, before=()):
    """One line on stderr, nothing on stdout, nothing new in the folder."""
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("pipesynth: ")
    assert result.err.count("\n") == 1
    assert result.err.endswith("\n")
    assert text in result.err
    if folder is not None:
        assert sorted(path.name for path in folder.iterdir()) == sorted(before)


PROBLEMS = [
    ("-P 0 -m 8", "devices must be at least 1, got 0"),
    ("-P 4 -m -3", "micro-batches must be at least 1, got -3"),
    ("-P four -m 8", "argument -P/--devices: invalid int value: 'four'"),
    ("-P 4", "needs -P (devices) and -m (micro-batches)"),
    ("-P 4 -m 8 --costs 1,x,1", "--costs 1,x,1: 'x' is not a number"),
    ("-P 4 -m 8 --costs 1,1", "--costs 1,1: needs 3 or 4 numbers, got 2"),
    ("-P 4 -m 8 --costs nan,1,1", "--costs nan,1,1: nan is not a finite number"),
    ("-P 4 -m 8 --costs 1,inf,1", "--costs 1,inf,1: inf is not a finite number"),
    ("-P 4 -m 8 --costs 1,1,1e999999999", "1e999999999 is too large or too small"),
    ("-P 4 -m 8 --costs 1,1,1e-300", "1e-300 is too large or too small"),
    ("-P 4 -m 8 --costs=-1,1,1", "--costs -1,1,1: -1 is negative"),
    ("-P 4 -m 8 --costs 0,1,1", "--costs 0,1,1: F, B and W must be above 0"),
    ("-P 4 -m 8 --costs ,,", "'' is not a number"),
    ("-P 4 -m 8 --costs 1,1,1,nan", "nan is not a finite number"),
    ("-P 4 -m 8 --costs 1e15,1e15,1e15", "too large"),
    ("-P 4 -m 8 --activation 1", "--activation 1: needs 2 numbers, got 1"),
    ("-P 4 -m 8 --activation 1,nan", "nan is not a finite number"),
    ("-P 4 -m 8 --memory lots", "--memory lots: 'lots' is not a number"),
    ("-P 4 -m 8 --memory 4,4", "--memory 4,4: needs 1 or 4 numbers, got 2"),
    ("-P 4 -m 8 --memory -1", "--memory -1: -1 is negative"),
    ("-P 4 -m 8 --placement zigzag", "placement 'zigzag' is not known"),
    ("-P 4 -m 8 --objective speed", "objective 'speed' is not known"),
    ("-P 100000 -m 100000", "more than the 3000000 that are handled"),
    ("-P 4 -m 8 --cost 1,1,1", "unrecognized arguments: --cost"),
]


@pytest.mark.parametrize("verb", ["solve", "graph", "baseline 1f1b", "compare 1f1b"])
@pytest.mark.parametrize(("options", "text"), PROBLEMS)
def test_problems_that_make_no_sense(pipesynth, verb, options, text):
    assert_refused(pipesynth(*verb.split(), *options.split()), 2, text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("fly", "invalid choice: 'fly'"),
        ("verify", "the following arguments are required: FILE"),
        ("verify a b", "unrecognized arguments: b"),
        ("baseline", "baseline needs a NAME"),
        ("run", "the following arguments are required: FILE; see"),
        ("baseline zb-h9 -P 4 -m 8", "zb-h9"),
        ("compare", "compare needs a FILE or the NAME of a baseline"),
        ("compare 1f1b", "baselines alone have no costs"),
        ("compare zb-h9 -P 4 -m 8", "zb-h9: no such file or baseline"),
        ("compare --baselines zb-h9 -P 4 -m 8", "zb-h9: no such file or baseline"),
        ("solve -P 2 -m 2 --time-limit 0", "must be a positive number of seconds"),
        ("solve -P 2 -m 2 --time-limit nan", "must be a positive number of seconds"),
        ("solve -P 2 -m 2 --time-limit x", "must be a positive number of seconds, got x"),
        ("solve -P 2 -m 2 --seed -1", "must be between 0 and"),
        ("solve -P 2 -m 2 --seed x", "argument --seed: 'x' is not a whole number"),
        ("show nothing.json --width x", "argument --width: 'x' is not a whole number"),
        ("frontier -P 2 -m 2 --limits 1e999999999", "1e999999999 is too large or too small"),
        ("frontier -P 2 -m 2 --step 1e-12", "--step 1e-12: 1e-12 is too large or too small"),
        ("profile -P 2 -o c.json --memory-gib x", "--memory-gib: 'x' is not a number"),
        ("profile -P 2 -o c.json --memory-gib 1e999999999", "1e999999999 is too large"),
        ("profile -P 2 -o c.json --seed 99999999999999999999", "must be between 0 and"),
        ("solve -P 2 -m 2 --solver magic", "invalid choice: 'magic'"),
        ("show nothing.json", "nothing.json: cannot be read: No such file or directory"),
        ("show . --width 3", "at least 20 columns are needed, got 3"),
        ("export nothing.json --to paper", "invalid choice: 'paper'"),
        ("graph -P 2 -m 2 -o graph.png", "use a name in .dot or .graphml"),
    ],
)
def test_wrong_usage(pipesynth, arguments, text):
    assert_refused(pipesynth(*arguments.split()), 2, text)


READERS = ["verify", "show", "export --to program", "compare"]


def edited(path, edit):
    """The schedule file with its JSON changed in place."""
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def duplicate(document):
    document["devices"][0].append(document["devices"][0][0])


UNREADABLE = {
    "duplicate op": (duplicate, "F0@0 appears twice - at `$.devices[0][6]`"),
    "unknown field": (lambda d: d.update(colour="red"), "unknown field `colour`"),
    "unknown op field": (lambda d: d["devices"][0][0].update(x=1), "at `$.devices[0][0]`"),
    "wrong version": (lambda d: d.update(version=2), "`$.version`"),
    "wrong format": (lambda d: d.update(format="pipesynth.run"), "`$.format`"),
    "text for a number": (
        lambda d: d["devices"][1][2].update(start="3"),
        "`$.devices[1][2].start`",
    ),
    "negative time": (lambda d: d["devices"][1][2].update(start=-3), "`$.devices[1][2].start`"),
    "fractional time": (lambda d: d["devices"][1][2].update(start=0.5), "`$.devices[1][2].start`"),
    "huge time": (lambda d: d["devices"][1][2].update(start=2**60), "`$.devices[1][2].start`"),
    "not an op": (lambda d: d["devices"][0][0].update(op="G0@0"), "'G0@0' is not an op"),
    "op outside": (lambda d: d["devices"][0][0].update(op="F7@0"), "has no op F7@0"),
    "device missing": (lambda d: d["devices"].pop(), "1 lists of ops for 2 devices"),
    "empty device": (lambda d: d.update(devices=[d["devices"][0], []]), "device 1 has no ops"),
    "no devices": (lambda d: d["problem"].update(devices=0), "`$.problem.devices`"),
    "bound above value": (lambda d: d["certificate"].update(bound=99), "`$.certificate`"),
    "field missing": (lambda d: d.pop("problem"), "missing required field `problem`"),
}


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("name", UNREADABLE)
def test_hand_edited_files(pipesynth, schedule_file, verb, name):
    edit, text = UNREADABLE[name]
    edited(schedule_file, edit)
    assert_refused(
        pipesynth(*verb.split(), schedule_file), 2, text, schedule_file.parent, ["gpipe.json"]
    )


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[1, 2",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"version": NaN}',
        b"\x00" * 9,
    ],
)
def test_files_that_are_no_schedule(pipesynth, schedule_file, verb, content):
    schedule_file.write_bytes(content)
    assert_refused(pipesynth(*verb.split(), schedule_file), 2, "gpipe.json: ")


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95])
def test_truncated_files(pipesynth, schedule_file, verb, share):
    content = schedule_file.read_bytes()
    schedule_file.write_bytes(content[: int(len(content) * share)])
    assert_refused(pipesynth(*verb.split(), schedule_file), 2, "not a whole JSON file")


@pytest.mark.parametrize("verb", READERS)
def test_a_folder_is_not_a_schedule(pipesynth, tmp_path, verb):
    assert_refused(pipesynth(*verb.split(), tmp_path), 2, "cannot be read: Is a directory")


def swap(ops, first, second):
    ops[first], ops[second] = ops[second], ops[first]


INVALID = {
    "op missing": (lambda d: d["devices"][1].pop(0), "count: F0@1"),
    "swapped order": (lambda d: swap(d["devices"][0], 0, 1), "order: F0@0"),
    "swapped in time": (
        lambda d: (d["devices"][1][0].update(op="B0@1"), d["devices"][1][2].update(op="F0@1")),
        "dependency: B0@1",
    ),
    "overlap": (lambda d: d["devices"][0][1].update(start=0, end=1), "overlap: F1@0"),
    "wrong device": (
        lambda d: d["devices"].reverse(),
        "placement: F0@0 at tick 0: runs on device 1, its stage is on device 0",
    ),
    "wrong duration": (lambda d: d["devices"][0][5].update(end=9), "duration: W1@0"),
    "wrong value": (lambda d: d["certificate"].update(value=9), "certificate: schedule"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_schedules_are_listed_by_verify(pipesynth, schedule_file, name):
    edit, text = INVALID[name]
    edited(schedule_file, edit)
    code, out, err = pipesynth("verify", schedule_file)
    assert (code, err) == (1, "")
    assert text in out
    code, out, err = pipesynth("verify", "--json", schedule_file)
    document = json.loads(out)
    assert (code, document["valid"]) == (1, False)
    assert any(
        f"{found['rule']}: {found['op']} at tick {found['tick']}: {found['text']}".startswith(text)
        for found in document["violations"]
    )


@pytest.mark.parametrize("name", INVALID)
def test_invalid_schedules_are_refused_by_who_relies_on_them(pipesynth, schedule_file, name):
    edited(schedule_file, INVALID[name][0])
    result = pipesynth("export", schedule_file, "--to", "program")
    assert_refused(result, 1, f"see `pipesynth verify {schedule_file}`")


@pytest.mark.parametrize("name", INVALID)
def test_invalid_schedules_are_still_shown(pipesynth, schedule_file, name):
    edited(schedule_file, INVALID[name][0])
    code, out, err = pipesynth("show", schedule_file)
    assert (code, err) == (1, "")
    assert "invalid: " in out


OUTPUTS = [
    ("there/is/no/folder.json", "there is no folder"),
    ("gpipe.json/x.json", "there is no folder"),
    (".", "is a folder; name a file in it"),
]


@pytest.mark.parametrize(
    "verb", ["solve -P 2 -m 2", "baseline 1f1b -P 2 -m 2", "export FILE --to program", "schema"]
)
@pytest.mark.parametrize(("path", "text"), OUTPUTS)
def test_outputs_that_cannot_be_written(pipesynth, schedule_file, verb, path, text):
    folder = schedule_file.parent
    words = [schedule_file if word == "FILE" else word for word in verb.split()]
    result = pipesynth(*words, "-o", folder / path)
    assert_refused(result, 2, text, folder, ["gpipe.json"])


def test_a_name_too_long_for_the_file_system(pipesynth, tmp_path):
    result = pipesynth("schema", "-o", tmp_path / ("x" * 300))
    assert_refused(result, 2, "File name too long", tmp_path)


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "synth", *map(str, arguments)],
        env=ENVIRONMENT,
        text=True,
        check=False,
        timeout=60,
        **options,
    )


def test_a_full_disk_behind_stdout_is_one_line():
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "w") as full:
        done = command("schema", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == "pipesynth: the output cannot be written: No space left on device\n"


def test_a_reader_that_goes_away_is_no_error_to_report():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = command("schema", stdout=gone, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("encoding", ["ascii:strict", "utf-8:strict"])
def test_what_stdout_cannot_spell_is_printed_escaped(schedule_file, encoding):
    edited(schedule_file, lambda document: document.update(name="caf\u00e9"))
    path = os.fsencode(schedule_file.parent) + b"/\xff.json"
    Path(os.fsdecode(path)).write_bytes(schedule_file.read_bytes())
    for verb in ("verify", "show", "compare", "explain"):
        done = subprocess.run(
            [sys.executable, "-m", "synth", verb, path],
            env={**ENVIRONMENT, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "arguments", ["-m synth solve -P 2 -m 2", "-m runtime gpipe.json --dry-run"]
)
def test_closed_streams_take_nothing_and_break_nothing(schedule_file, arguments, closed):
    done = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} {arguments} {closed}"],
        env={**ENVIRONMENT, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        cwd=schedule_file.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))
