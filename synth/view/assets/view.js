// The page of `pipesynth view`.

const data = JSON.parse(document.getElementById("data").textContent);
const schedules = data.schedules.map(readSchedule);
const timeline = new Timeline(document.getElementById("timeline"), { wheelZooms: true });
const card = new Card(document.getElementById("card"), timeline);
timeline.onHover = (found) => card.show(found);

document.querySelector('[data-option="measured"]').hidden = !schedules.some(({ measured }) => measured);
fillTable(document.getElementById("figures"), schedules);
fillLegend(document.getElementById("legend"), schedules, timeline.colours);
bindPage(timeline, (colours) => fillLegend(document.getElementById("legend"), schedules, colours));
timeline.show(schedules);
window.pipesynth = { timeline, schedules };

function fillTable(table, shown) {
  const causes = ["fill", "input", "transfer", "memory", "order", "drain"];
  const heads = ["schedule", "placement", "P", "m", "makespan", "span", "bound", "gap", "peak",
    "messages", "bubble", "idle", ...causes];
  table.createTHead().insertRow().append(...heads.map((text, at) =>
    Object.assign(document.createElement("th"), { textContent: text, className: at < 2 ? "word" : "" })));
  const body = table.createTBody();
  for (const schedule of shown) {
    const { problem, figures, memory } = schedule;
    const peak = Math.max(...memory.peaks) / problem.quantaPerUnit;
    const limits = problem.limits.filter((limit) => limit !== null);
    const limit = limits.length ? `/${number(Math.max(...limits) / problem.quantaPerUnit, 2)}` : "";
    const total = problem.streams.reduce((sum, stream) => sum + stream.microbatches, 0);
    const cells = [schedule.label, problem.placement, problem.devices, total,
      number(figures.makespan), number(figures.span), number(figures.bound),
      figures.optimal ? "optimal" : percent(figures.gap), number(peak, 2) + limit, figures.messages,
      percent(figures.bubble), idleShare(schedule, causes), ...causes.map((cause) => idleShare(schedule, [cause]))];
    const row = body.insertRow();
    cells.forEach((text, at) => {
      const cell = row.insertCell();
      cell.textContent = text;
      if (at < 2) cell.className = "word";
    });
    row.cells[6].title = row.cells[7].title = figures.proof;
    if (schedule.invalid) {
      const cell = body.insertRow().insertCell();
      cell.colSpan = heads.length;
      cell.className = "alarm word";
      cell.textContent = `invalid, ${schedule.invalid} violations: ${schedule.violations[0]}`;
    }
  }
}

// The share of all devices' time within the makespan in which they idle for some causes.
function idleShare(schedule, names) {
  let ticks = 0;
  for (const row of schedule.idle) {
    for (const [start, end, cause] of row) {
      if (names.includes(schedule.causes[cause])) ticks += end - start;
    }
  }
  return ticks ? percent(ticks / (schedule.last - schedule.origin) / schedule.problem.devices) : "–";
}
