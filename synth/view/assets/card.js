// The card beside the pointer: what an op is, when it runs, what it waits for and what is held.

const CAUSES = {
  fill: "fill: before the device's first op",
  drain: "drain: after the device's last op",
  input: "waits for another device",
  transfer: "waits for a transfer",
  memory: "ready ops have no room in memory",
  order: "ready ops come later in the order",
};
const VIA = { order: "the op before it here", data: "its input, made here", transfer: "its input" };

class Card {
  constructor(element, timeline) {
    this.element = element;
    this.timeline = timeline;
  }

  show(found) {
    const rows = found && cardRows(found);
    this.element.hidden = !rows;
    if (!rows) return;
    this.element.replaceChildren(...rows.map(cardRow));
    const { timeline } = this;
    const host = timeline.host.getBoundingClientRect();
    const { pointer } = timeline;
    const at = pointer && timeline.hover ? pointer : timeline.box(found.schedule, found.op);
    this.place({ x: host.left + at.x, y: host.top + at.y, height: at.height || 0 });
  }

  // Say something of a part of the page that is no op.
  tell(rows, box) {
    this.element.hidden = false;
    this.element.replaceChildren(...rows.map(cardRow));
    this.place(box);
  }

  hide() {
    this.element.hidden = true;
  }

  // Beside the pointer, or beside what the keyboard chose; never over the edge.
  place(at) {
    const { element } = this;
    const [width, height] = [element.offsetWidth, element.offsetHeight];
    let x = at.x + 16;
    let y = at.y + at.height + 18;
    if (x + width > innerWidth - 8) x = Math.max(8, at.x - width - 16);
    if (y + height > innerHeight - 8) y = Math.max(8, at.y - height - 18);
    element.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  }
}

function cardRow([label, text, kind]) {
  const row = document.createElement("div");
  row.className = label ? "" : "head";
  if (label) row.append(Object.assign(document.createElement("span"), { textContent: label }));
  const value = Object.assign(document.createElement("b"), { textContent: text });
  if (kind !== undefined) value.dataset.kind = kind;
  row.append(value);
  return row;
}

// Rows of [label, text]; the first has no label. None for a place where nothing is to be said.
function cardRows(found) {
  if (found.part === "measured") return found.op >= 0 ? measuredRows(found) : null;
  if (found.part === "memory") return memoryRows(found);
  if (found.part === "lane") return transferRows(found);
  return found.op >= 0 ? opRows(found) : idleRows(found);
}

function timeText(problem, ticks, digits = 4) {
  const unit = problem.time === "unit" ? "" : ` ${problem.time}`;
  return number(ticks / problem.ticksPerUnit, digits) + unit;
}

function period(schedule, start, end) {
  const { problem, origin } = schedule;
  return `${timeText(problem, start - origin)} – ${timeText(problem, end - origin)}`
    + ` (${timeText(problem, end - start)})`;
}

function heldText({ problem }, quanta, device) {
  const limit = problem.limits[device];
  const held = number(quanta / problem.quantaPerUnit, 3);
  return limit === null ? held : `${held} of ${number(limit / problem.quantaPerUnit, 3)}`;
}

function opRows({ schedule, op, device }) {
  const { ops, memory } = schedule;
  const start = ops.start[op];
  const rows = [
    ["", schedule.name(op), ops.kind[op]],
    ["is", opText(schedule, op)],
    ["time", period(schedule, start, ops.end[op])],
    ["held", `${heldText(schedule, memory.during[op], device)}, then ${
      number(memory.after[op] / schedule.problem.quantaPerUnit, 3)}`],
    ["bound by", bindingText(schedule, op)],
  ];
  const sent = schedule.outputs(op).map(({ op: to, arrival }) => {
    const wait = ops.start[to] - arrival;
    const where = ops.device[to] === device ? "" : ` on ${ops.device[to]}`;
    return `${schedule.name(to)}${where}${wait > 0 ? ` in ${timeText(schedule.problem, wait)}` : ""}`;
  });
  if (sent.length) rows.push(["feeds", sent.join(", ")]);
  if (schedule.measured) rows.push(...measuredTwin(schedule, op));
  return rows;
}

function opText({ ops, problem, chunks }, op) {
  const [[kind, , stage, stream]] = ops.parts(op);
  const name = KIND_NAMES[ops.kind[op] === FB ? FB : kind];
  const held = problem.streams[stream].route.filter((d) => d === ops.device[op]).length;
  const chunk = held > 1 ? `, chunk ${chunks[stream][stage]}` : "";
  const way = problem.streams[stream].name ? `, stream ${problem.streams[stream].name}` : "";
  return `${name}, device ${ops.device[op]}, stage ${stage}${chunk}${way}`;
}

function bindingText(schedule, op) {
  const { op: before, via, slack } = schedule.binding(op);
  const late = slack > 0 ? `; could start ${timeText(schedule.problem, slack)} earlier` : "";
  if (before < 0) return `nothing${late}`;
  const { ops } = schedule;
  const where = via === "transfer" ? ` on ${ops.device[before]}` : "";
  return `${schedule.name(before)}${where}, ${VIA[via]}${late}`;
}

function idleRows({ schedule, device, tick }) {
  const stretch = (schedule.idle[device] || []).find(([start, end]) => start <= tick && tick < end);
  if (!stretch) return null;
  const [start, end, cause, could] = stretch;
  const rows = [["", "idle"], ["time", period(schedule, start, end)],
    ["cause", CAUSES[schedule.causes[cause]]]];
  if (could) rows.push(["such as", could]);
  const { ops } = schedule;
  const next = opAtOrBefore(ops, device, tick) + (ops.start[ops.first[device]] <= tick ? 1 : 0);
  if (next < ops.first[device + 1]) {
    rows.push(["until", schedule.name(next)], ["bound by", bindingText(schedule, next)]);
  }
  return rows;
}

function memoryRows({ schedule, device, tick }) {
  const { ops, memory, origin, last } = schedule;
  if (tick < origin || tick >= last) return null;
  const op = opAtOrBefore(ops, device, tick);
  const held = tick < ops.start[op] ? 0 : tick < ops.end[op] ? memory.during[op] : memory.after[op];
  return [["", `device ${device} holds ${heldText(schedule, held, device)}`],
    ["unit", `${schedule.problem.memory}s`],
    ["peak", heldText(schedule, memory.peaks[device], device)]];
}

function transferRows({ schedule, device, tick }) {
  const { ops } = schedule;
  const latest = opAtOrBefore(ops, device, tick);
  const rows = [];
  for (let op = latest; op >= ops.first[device] && op > latest - 8; op--) {
    for (const { op: to, node, arrival } of schedule.outputs(op)) {
      if (ops.device[to] === device || tick < ops.end[op] || tick >= arrival) continue;
      rows.push(["", `${schedule.name(op)} → device ${ops.device[to]}`],
        ["carries", node[0] === F ? "activations" : "gradients"],
        ["time", period(schedule, ops.end[op], arrival)], ["for", schedule.name(to)]);
    }
  }
  return rows.length ? rows : null;
}

function measuredRows({ schedule, op }) {
  const { ops, ticksPerPlanTick, planned } = schedule.measured;
  const name = ops.name(op, schedule.problem.streams);
  const second = (tick) => tick * ticksPerPlanTick * 1e-7;
  const rows = [["", `${name} measured`],
    ["time", `${seconds(second(ops.start[op]))} – ${seconds(second(ops.end[op]))}`],
    ["took", seconds(second(ops.end[op] - ops.start[op]))]];
  const twin = schedule.find(ops.nodes(op)[0]);
  if (twin >= 0) rows.push(...driftRows(schedule, twin, op, planned));
  return rows;
}

function driftRows(schedule, planned, measured, known) {
  const [plan, real] = [schedule.ops, schedule.measured.ops];
  const ratio = (real.end[measured] - real.start[measured])
    / (plan.end[planned] - plan.start[planned]);
  const late = real.start[measured] - (plan.start[planned] - schedule.origin);
  const { ticksPerPlanTick } = schedule.measured;
  const rows = [["starts", `${seconds(Math.abs(late) * ticksPerPlanTick * 1e-7)} ${
    late < 0 ? "before" : "behind"} plan`]];
  if (known) rows.push(["of plan", number(ratio, 3)]);
  return rows;
}

function measuredTwin(schedule, op) {
  const { ops, ticksPerPlanTick, planned } = schedule.measured;
  if (!schedule.measured.index) {
    schedule.measured.index = new Map();
    for (let at = 0; at < ops.count; at++) {
      schedule.measured.index.set(schedule.slot(ops.nodes(at)[0]), at);
    }
  }
  const twin = schedule.measured.index.get(schedule.slot(schedule.ops.nodes(op)[0]));
  if (twin === undefined) return [];
  const took = seconds((ops.end[twin] - ops.start[twin]) * ticksPerPlanTick * 1e-7);
  return [["measured", took], ...driftRows(schedule, op, twin, planned)];
}
