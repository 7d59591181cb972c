// The page of `pipesynth playground`.

const library = JSON.parse(document.getElementById("data").textContent).library.map(readSchedule);
const groups = groupLibrary(library);
const timeline = new Timeline(document.getElementById("timeline"));
const card = new Card(document.getElementById("card"), timeline);
timeline.onHover = (found) => card.show(found);
const frontier = new Chart(document.getElementById("frontier"), card);
const everyFile = new Chart(document.getElementById("files"), card);
const controls = document.getElementById("controls");
const shown = new Set(["1f1b", "zb-h1", "zb-h2"]);
const TIMES = ["F", "B", "W", "c", "C"];
let results = [];

function readSettings() {
  const value = (name) => Number(controls.elements[name].value);
  return {
    P: value("P"), m: value("m"), V: value("V"), limit: value("limit"),
    times: TIMES.map(value), objective: controls.elements.objective.value,
  };
}

// Sliders go in tenths; one that is set to another value, or beyond its end, gives way.
function writeSettings({ times, ...rest }) {
  const values = { ...rest };
  TIMES.forEach((name, at) => { values[name] = times[at]; });
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined) continue;
    const control = controls.elements[name];
    if (control.step && Number(value) > Number(control.max)) control.max = Math.ceil(value);
    if (control.step && TIMES.includes(name)) control.step = Number.isInteger(10 * value) ? "0.1" : "any";
    control.value = value;
  }
  update();
}

function update() {
  const settings = readSettings();
  for (const output of controls.querySelectorAll("output")) {
    const { value } = controls.elements[output.htmlFor.value];
    output.value = output.htmlFor.value === "limit" && value === "0" ? "none" : value;
  }
  document.getElementById("asked").textContent = problemText(settings); // for paper, without sliders
  results = FAMILIES.map((family) => buildFamily(family, settings));
  const solved = groups.find((group) => group.settings && sameProblem(group.settings, settings))
    ?.members ?? [];
  fillResults(document.getElementById("results"), results, solved);
  drawCharts(settings, solved);
  const schedules = [
    ...results.filter(({ family, schedule }) => schedule && shown.has(family.name))
      .map(({ schedule }) => addIdle(schedule)),
    ...solved.filter(({ label }) => shown.has(label)),
  ];
  timeline.host.hidden = !schedules.length;
  if (!schedules.length) return;
  timeline.schedules = schedules;
  timeline.layout();
  timeline.host.style.height = `${timeline.height + 4}px`;
  timeline.show(schedules);
  fillLegend(document.getElementById("legend"), schedules, timeline.colours);
}

function toggle(name) {
  if (!shown.delete(name)) shown.add(name);
  update();
}

// Above what answers the settings, below every file; the handcrafted stand in both.
function drawCharts(settings, solved) {
  const crafted = results.filter(({ schedule }) => schedule).map(craftedPoint);
  const last = new Map(solved.map((schedule) => [schedule.problem.placement, schedule]));
  const here = solved.map((schedule) => solvedPoint(schedule, {
    series: schedule.problem.placement, shown: shown.has(schedule.label),
    label: last.get(schedule.problem.placement) === schedule ? schedule.problem.placement : "",
    press: () => toggle(schedule.label),
  }));
  frontier.draw([...crafted, ...here], settings.limit);
  const all = groups.flatMap((group, at) => group.members.map((schedule) =>
    solvedPoint(schedule, {
      x: limitOf(schedule) / schedule.problem.devices, series: `${at} ${schedule.problem.placement}`,
      shown: solved.includes(schedule) && shown.has(schedule.label),
      faint: !solved.includes(schedule), press: () => open(group, schedule.label),
    })));
  document.getElementById("every").hidden = !all.length;
  everyFile.draw([...crafted.map((point) => ({ ...point, x: point.x / settings.P, label: "" })), ...all],
    settings.limit / settings.P);
}

// Go to a problem and show one of its solutions; where no slider can say it, nothing happens.
function open({ settings }, label) {
  if (!settings) return;
  const same = sameProblem(settings, readSettings());
  if (!same) shown.add(label);
  else if (!shown.delete(label)) shown.add(label);
  writeSettings(settings);
}

function craftedPoint({ family, schedule }) {
  const peak = peakOf(schedule);
  return {
    id: family.name, x: peak, y: schedule.figures.bubble, label: family.title, mark: "crafted",
    shown: shown.has(family.name), press: () => toggle(family.name),
    rows: [["", family.title], ["is", "handcrafted, at these settings"],
      ["holds", number(peak)], ["bubble", percent(schedule.figures.bubble)]],
  };
}

function fillResults(table, families, solved) {
  const heads = ["", "schedule", "makespan", "span", "bubble", "idle by formula", "idle",
    "simulated", "peak by formula", "peak", "simulated"];
  table.tHead.rows[0].replaceChildren(...heads.map((text, at) => Object.assign(
    document.createElement("th"), { textContent: text, className: [1, 5, 8].includes(at) ? "word" : "" })));
  table.tBodies[0].replaceChildren(
    ...families.map(familyRow), ...solved.map((schedule) => solvedRow(schedule)));
}

function resultRow(name, cells, words) {
  const row = document.createElement("tr");
  row.dataset.family = name;
  const box = Object.assign(document.createElement("input"),
    { type: "checkbox", checked: shown.has(name), ariaLabel: `show ${name}` });
  box.onchange = () => toggle(name);
  row.insertCell().append(box);
  cells.forEach((text, at) => {
    const cell = row.insertCell();
    cell.textContent = text;
    if (words.includes(at)) cell.className = "word";
  });
  return row;
}

function familyRow({ family, schedule, formula, reason }) {
  if (reason) {
    const row = resultRow(family.name, [family.title, reason], [0, 1]);
    row.className = "refused";
    row.cells[2].colSpan = 9;
    return row;
  }
  const { makespan, span, bubble, idle } = schedule.figures;
  const quanta = schedule.problem.quantaPerUnit;
  const peak = Math.max(...schedule.memory.peaks) / quanta;
  const known = formula.peaks && Math.max(...formula.peaks);
  const row = resultRow(family.name, [family.title, number(makespan), number(span), percent(bubble),
    formula.text, formula.idle === null ? "–" : number(formula.idle), number(idle),
    family.peakText, known === null ? "–" : number(known), number(peak)], [0, 4, 7]);
  agree(row.cells[7], formula.idle, idle);
  agree(row.cells[10], known, peak);
  const { limit } = readSettings();
  if (limit > 0 && peak > limit) row.cells[10].classList.add("alarm");
  return row;
}

// A simulated number that its formula meets is set strong; where none holds it stands as it is.
function agree(cell, formula, simulated) {
  if (formula !== null && Math.abs(formula - simulated) < 1e-9) cell.classList.add("agrees");
}

function solvedRow(schedule) {
  const { figures, problem, label } = schedule;
  const row = resultRow(label, [`${figures.optimal ? "◆" : "◇"} ${problem.placement}, limit ${number(limitOf(schedule), 2)}`,
    number(figures.makespan), number(figures.span), percent(figures.bubble), proofText(schedule),
    "", "", `${label}.json`, "", number(peakOf(schedule))], [0, 4, 7]);
  row.cells[5].title = figures.proof;
  row.classList.add("solution");
  return row;
}

function fillLibrary(select) {
  const known = groups.filter(({ settings }) => settings);
  select.closest("label").hidden = !known.length;
  known.forEach(({ settings, members }, at) =>
    select.add(new Option(`${problemText(settings)}  (${members.length})`, at)));
  select.onchange = () => {
    if (select.value !== "") writeSettings(known[select.value].settings);
  };
}

KEYS.push(["Tab, arrows", "from point to point of a chart"], ["Enter", "show a point's schedule"]);
document.querySelector('[data-option="measured"]').hidden = true;
controls.addEventListener("input", update);
fillLibrary(document.getElementById("library"));
bindPage(timeline, (colours) =>
  fillLegend(document.getElementById("legend"), timeline.schedules, colours));
update();
window.pipesynth = { timeline, frontier, results: () => results, set: writeSettings, settings: readSettings };
