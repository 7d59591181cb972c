// The page of `pipesynth playground`.

const library = JSON.parse(document.getElementById("data").textContent).library.map(readSchedule);
const timeline = new Timeline(document.getElementById("timeline"));
const card = new Card(document.getElementById("card"), timeline);
timeline.onHover = (found) => card.show(found);
const controls = document.getElementById("controls");
const shown = new Set(["1f1b", "zb-h1", "zb-h2"]);
let results = [];

// P, m, V and the limit are whole; times and memory are tenths of a unit.
function readSettings() {
  const whole = (name) => Number(controls.elements[name].value);
  const tenths = (name) => Math.round(10 * whole(name));
  return {
    P: whole("P"), m: whole("m"), V: whole("V"), limit: whole("limit"),
    times: ["F", "B", "W", "c", "C"].map(tenths),
    objective: controls.elements.objective.value,
  };
}

function writeSettings({ P, m, V, times, limit, objective }) {
  const values = { P, m, V, limit, objective };
  ["F", "B", "W", "c", "C"].forEach((name, at) => { values[name] = times[at] / 10; });
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined) controls.elements[name].value = value;
  }
  update();
}

function update() {
  const settings = readSettings();
  for (const output of controls.querySelectorAll("output")) {
    const { value } = controls.elements[output.htmlFor.value];
    output.value = output.htmlFor.value === "limit" && value === "0" ? "none" : value;
  }
  results = FAMILIES.map((family) => buildFamily(family, settings));
  const solved = library.filter((schedule) => answers(schedule, settings));
  fillResults(document.getElementById("results"), results, solved);
  const points = [...results.filter(({ schedule }) => schedule).map(craftedPoint),
    ...solved.map(solvedPoint)];
  drawFrontier(document.getElementById("frontier"), points, settings.limit);
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

function peakOf({ memory, problem }) {
  return Math.max(...memory.peaks) / problem.quantaPerUnit;
}

function craftedPoint({ family, schedule }) {
  return {
    x: peakOf(schedule), y: schedule.figures.bubble, label: family.title, solved: false,
    shown: shown.has(family.name), click: () => toggle(family.name),
    title: `${family.title}: bubble ${percent(schedule.figures.bubble)}, holds ${peakOf(schedule)}`,
  };
}

function solvedPoint(schedule) {
  const { figures, label, problem } = schedule;
  const proof = figures.optimal ? "optimal" : `bound ${number(figures.bound)}`;
  return {
    x: peakOf(schedule), y: figures.bubble, label: problem.placement, solved: true,
    shown: shown.has(label), click: () => toggle(label),
    title: `${label}: ${problem.objective} ${number(figures[problem.objective])}, ${proof}`,
  };
}

// The settings that a solved schedule of equal stages answers, null when sliders cannot be set so.
function settingsOf({ problem }) {
  const { devices: P, stages, streams, ticksPerUnit, quantaPerUnit, objective } = problem;
  const [f, b, w, fused, , a, context] = stages[0];
  const chunks = stages.length / P;
  const times = [
    ...[f, b, w].map((ticks) => (10 * ticks * chunks) / ticksPerUnit),
    (10 * problem.comm) / ticksPerUnit, (10 * context * chunks) / quantaPerUnit,
  ];
  const m = streams.reduce((sum, stream) => sum + stream.microbatches, 0);
  const even = fused === b + w && stages.every((cost) => cost.every((value, at) => value === stages[0][at]));
  const whole = times.every((tenths) => Math.abs(tenths - Math.round(tenths)) < 1e-6);
  const inRange = P <= 16 && m <= 64 && Math.max(...times) <= 40;
  if (!even || !whole || !inRange || Math.abs((a * chunks) / quantaPerUnit - 1) > 1e-6) return null;
  return { P, m, times: times.map(Math.round), objective };
}

function answers(schedule, settings) {
  const own = settingsOf(schedule);
  return own !== null && sameProblem(own, settings);
}

function sameProblem(a, b) {
  return a.P === b.P && a.m === b.m && a.objective === b.objective
    && a.times.every((value, at) => value === b.times[at]);
}

function fillResults(table, families, solved) {
  const heads = ["", "schedule", "makespan", "span", "bubble", "idle by formula", "formula",
    "simulated", "peak by formula", "formula", "simulated"];
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
  const proof = figures.optimal ? "optimal" : `bound ${number(figures.bound)}`;
  return resultRow(label, [`solved, ${problem.placement}`, number(figures.makespan),
    number(figures.span), percent(figures.bubble), proof, "", "", "", "", number(peakOf(schedule))],
  [0, 4]);
}

function fillLibrary(select) {
  const groups = [];
  for (const schedule of library) {
    const settings = settingsOf(schedule);
    if (!settings) continue;
    const group = groups.find((other) => sameProblem(other.settings, settings));
    if (group) group.count++;
    else groups.push({ settings, count: 1 });
  }
  select.closest("label").hidden = !groups.length;
  groups.forEach(({ settings: { P, m, times, objective }, count }, at) => {
    const [f, b, w, c, context] = times.map((tenths) => tenths / 10);
    select.add(new Option(`P ${P}  m ${m}  F,B,W ${f},${b},${w}  hop ${c}  W memory ${context}  `
      + `${objective}  (${count})`, at));
  });
  select.onchange = () => {
    if (select.value !== "") writeSettings(groups[select.value].settings);
  };
}

controls.addEventListener("input", update);
fillLibrary(document.getElementById("library"));
bindPage(timeline, (colours) =>
  fillLegend(document.getElementById("legend"), timeline.schedules, colours));
update();
window.pipesynth = { timeline, results: () => results, set: writeSettings, settings: readSettings };
