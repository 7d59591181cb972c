// What surrounds the rows: axis, titles, figures; and what lies over them: outlines and arrows.

function paintTimeline(timeline, context) {
  const { ratio, colours, host, base } = timeline;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, base.width, base.height);
  paintGrid(timeline, context);
  context.save();
  context.beginPath();
  context.rect(0, AXIS * ratio, base.width, base.height);
  context.clip();
  const [from, to] = [host.scrollTop, host.scrollTop + host.clientHeight];
  for (const panel of timeline.panels) {
    if (panel.bottom < from || panel.top > to) continue;
    paintTitle(timeline, context, panel);
    paintMarks(timeline, context, panel);
    for (const row of panel.rows) {
      if (row.bottom >= from && row.top <= to) paintRow(timeline, context, panel, row);
    }
  }
  context.restore();
  paintAxis(timeline, context);
}

function write(timeline, context, text, x, y, { colour, align = "left", size = 11, bold } = {}) {
  const { ratio, colours } = timeline;
  context.font = `${bold ? "600 " : ""}${size * ratio}px ${colours.font}`;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillStyle = colour || colours.ink;
  context.fillText(text, x * ratio, y * ratio);
}

// Round times, 1, 2 or 5 times a power of ten apart and at least 72 pixels.
function axisStep(timeline) {
  const least = (72 * timeline.span) / timeline.plot;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

function* axisMarks(timeline) {
  const step = axisStep(timeline);
  const last = timeline.t0 + timeline.span;
  for (let n = Math.ceil(Math.max(0, timeline.t0) / step); n * step <= last; n++) {
    yield [n * step, GUTTER + ((n * step - timeline.t0) / timeline.span) * timeline.plot];
  }
}

function paintGrid(timeline, context) {
  const { ratio, colours, base } = timeline;
  context.fillStyle = colours.faint;
  for (const [, x] of axisMarks(timeline)) {
    context.fillRect(Math.round(x * ratio), AXIS * ratio, Math.max(1, ratio >> 1), base.height);
  }
}

function paintAxis(timeline, context) {
  const { ratio, colours, base } = timeline;
  context.fillStyle = colours.line;
  context.fillRect(0, Math.round((AXIS - 1) * ratio), base.width, ratio);
  const digits = Math.max(0, -Math.floor(Math.log10(axisStep(timeline))));
  for (const [time, x] of axisMarks(timeline)) {
    context.fillStyle = colours.line;
    context.fillRect(Math.round(x * ratio), Math.round((AXIS - 5) * ratio), ratio, 4 * ratio);
    write(timeline, context, number(time, digits), x + 3, AXIS / 2, { colour: colours.soft });
  }
  const shown = timeline.span / (timeline.total * 1.004);
  if (shown < 0.999) { // how much of the whole is in view, and where
    const start = Math.max(0, timeline.t0 / (timeline.total * 1.004));
    context.fillStyle = colours.accent;
    context.fillRect((GUTTER + start * timeline.plot) * ratio, 0,
      Math.max(3, shown * timeline.plot) * ratio, 2 * ratio);
  }
}

function paintTitle(timeline, context, { schedule, top }) {
  const y = top - timeline.host.scrollTop + TITLE / 2 + 2;
  const { colours, ratio } = timeline;
  write(timeline, context, schedule.title, GUTTER, y, { bold: true, size: 12 });
  const x = GUTTER + context.measureText(schedule.title).width / ratio + 10;
  write(timeline, context, panelText(schedule), x, y, { colour: colours.soft });
  const right = GUTTER + timeline.plot + 8;
  write(timeline, context, "busy", right + 34, y, { colour: colours.soft, align: "right" });
  write(timeline, context, "peak", right + 100, y, { colour: colours.soft, align: "right" });
}

function panelText({ figures, measured, problem, invalid, note }) {
  const parts = [`${problem.objective} ${number(figures[problem.objective])}`];
  if (figures.bound) {
    parts.push(figures.optimal ? "optimal" : `bound ${number(figures.bound)}`);
  }
  parts.push(`bubble ${percent(figures.bubble)}`);
  if (note) parts.push(note);
  if (invalid) parts.push(`invalid: ${invalid} violations`);
  if (measured) {
    const step = `measured step ${measured.step} of ${measured.steps}: ${seconds(measured.makespan)}`;
    parts.push(measured.planned
      ? `${step}, ${number(measured.makespan / measured.planned, 3)} of plan`
      : `${step}, drawn to the plan's length`);
  }
  return parts.join("   ");
}

function seconds(value) {
  return value >= 1 ? `${value.toFixed(3)} s` : value >= 1e-3 ? `${(1e3 * value).toFixed(2)} ms`
    : `${(1e6 * value).toFixed(1)} µs`;
}

function paintRow(timeline, context, { schedule }, row) {
  const { ratio, options, host, colours } = timeline;
  const place = ({ top, height }) =>
    [Math.round((top - host.scrollTop) * ratio), Math.round(height * ratio)];
  const brush = timeline.brush(context, schedule);
  context.save();
  context.beginPath();
  context.rect(brush.left, 0, brush.right - brush.left, timeline.base.height);
  context.clip();
  if (options.idle) paintIdle(brush, schedule, row.device, ...place(row.cell));
  paintOps(brush, schedule, schedule.ops, row.device, ...place(row.cell), true);
  if (row.lane.height) paintTransfers(brush, schedule, row.device, ...place(row.lane));
  if (row.measured.height) {
    const measured = timeline.brush(context, schedule, 0);
    paintOps(measured, schedule, schedule.measured.ops, row.device, ...place(row.measured), false);
  }
  if (row.memory.height) paintMemory(brush, schedule, row.device, ...place(row.memory));
  context.restore();
  const y = row.cell.top - host.scrollTop + row.cell.height / 2 + 0.5;
  write(timeline, context, String(row.device), GUTTER - 8, y, { align: "right" });
  const right = GUTTER + timeline.plot + 8;
  const busy = percent(busyShare(schedule, row.device));
  write(timeline, context, busy, right + 34, y, { align: "right", colour: colours.soft });
  const [text, over] = peakText(schedule, row.device);
  write(timeline, context, text, right + 100, y,
    { align: "right", colour: over ? colours.alarm : colours.soft });
}

function busyShare(schedule, device) {
  const { ops } = schedule;
  if (!schedule.busy) schedule.busy = [];
  if (schedule.busy[device] === undefined) {
    let ticks = 0;
    for (let op = ops.first[device]; op < ops.first[device + 1]; op++) {
      ticks += ops.end[op] - ops.start[op];
    }
    schedule.busy[device] = ticks / (schedule.last - schedule.origin);
  }
  return schedule.busy[device];
}

function peakText({ memory, problem }, device) {
  const peak = memory.peaks[device];
  const limit = problem.limits[device];
  const text = number(peak / problem.quantaPerUnit, 2);
  return [limit === null ? text : `${text}/${number(limit / problem.quantaPerUnit, 2)}`,
    limit !== null && peak > limit];
}

// The end of the makespan, and the bound where the two differ.
function paintMarks(timeline, context, { schedule, top, bottom }) {
  const { ratio, colours, host } = timeline;
  const brush = timeline.brush(context, schedule);
  const [from, to] = [top + TITLE - 3, bottom - 14].map((y) => (y - host.scrollTop) * ratio);
  const line = (tick, dash) => {
    const x = brush.at(tick) - 0.5 * ratio;
    if (x < brush.left || x > brush.right) return;
    context.strokeStyle = colours.ink;
    context.lineWidth = ratio;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x, from);
    context.lineTo(x, to);
    context.stroke();
    context.setLineDash([]);
  };
  line(schedule.last, []);
  const { bound, optimal } = schedule.figures;
  if (bound && !optimal && schedule.problem.objective === "makespan") {
    line(schedule.origin + bound * schedule.problem.ticksPerUnit, [3 * ratio, 3 * ratio]);
  }
}

function paintOver(timeline, context) {
  const { ratio, colours, base } = timeline;
  context.save();
  context.beginPath();
  context.rect(0, AXIS * ratio, base.width, base.height);
  context.clip();
  const shown = timeline.hover || timeline.selected;
  if (shown && shown.op >= 0 && shown.part === "cell") {
    if (timeline.options.follow) paintFollowed(timeline, context, shown);
    paintLinks(timeline, context, shown);
  }
  if (timeline.selected) outline(timeline, context, timeline.selected, colours.ink, 2);
  context.restore();
  if (timeline.pointer) paintCursor(timeline, context);
}

function outline(timeline, context, { schedule, op }, colour, width) {
  const { ratio } = timeline;
  const { x, y, width: wide, height } = timeline.box(schedule, op);
  context.strokeStyle = colour;
  context.lineWidth = width * ratio;
  context.strokeRect(Math.round(x * ratio), Math.round(y * ratio),
    Math.max(ratio, Math.round((wide - 1) * ratio)), Math.round(height * ratio));
}

// Arrows from producers and to consumers; what binds the start is drawn strongest.
function paintLinks(timeline, context, { schedule, op }) {
  const { colours } = timeline;
  const binding = schedule.binding(op);
  for (const { op: from } of schedule.inputs(op)) {
    if (from === binding.op && binding.slack <= 0) continue;
    arrow(timeline, context, schedule, from, op, colours.soft, 1.25);
  }
  for (const { op: to } of schedule.outputs(op)) {
    arrow(timeline, context, schedule, op, to, colours.soft, 1.25);
  }
  if (binding.op >= 0) {
    outline(timeline, context, { schedule, op: binding.op }, colours.accent, 1.5);
    if (binding.via !== "order") {
      arrow(timeline, context, schedule, binding.op, op, colours.accent, 2);
    }
  }
  outline(timeline, context, { schedule, op }, colours.ink, 2);
}

function arrow(timeline, context, schedule, from, to, colour, width) {
  const { ratio, colours } = timeline;
  const [a, b] = [timeline.box(schedule, from), timeline.box(schedule, to)];
  const [x1, y1] = [(a.x + a.width - 1.5) * ratio, (a.y + a.height / 2) * ratio];
  const [x2, y2] = [(b.x + 0.5) * ratio, (b.y + b.height / 2) * ratio];
  const level = a.y === b.y; // along one device it passes below the cells in between
  const dip = level ? (a.height / 2 + 12) * ratio : 0;
  const bend = Math.max(10 * ratio, Math.min(60 * ratio, Math.abs(x2 - x1) / 2));
  const path = () => {
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1 + bend, y1 + 1.34 * dip, x2 - bend, y2 + 1.34 * dip, x2, y2);
    context.stroke();
    context.beginPath();
    const [back, out, lean] = [6 * ratio, 3.5 * ratio, level ? 4 * ratio : 0];
    context.moveTo(x2 - back, y2 - out + lean);
    context.lineTo(x2, y2);
    context.lineTo(x2 - back + lean, y2 + out + lean);
    context.stroke();
  };
  context.strokeStyle = colours.paper;
  context.lineWidth = (width + 2.5) * ratio;
  path();
  context.strokeStyle = colour;
  context.lineWidth = width * ratio;
  path();
}

// Everything but one micro-batch fades.
function paintFollowed(timeline, context, { schedule, op }) {
  const { ratio, colours, base, host } = timeline;
  const { ops } = schedule;
  context.globalAlpha = 0.72;
  context.fillStyle = colours.paper;
  const panel = timeline.panels.find((other) => other.schedule === schedule);
  context.fillRect(GUTTER * ratio, (panel.top + TITLE - host.scrollTop) * ratio,
    base.width - (GUTTER + MARGIN) * ratio, (panel.bottom - panel.top - TITLE) * ratio);
  context.globalAlpha = 1;
  const wanted = new Set(ops.parts(op).map(([, microbatch, , stream]) => `${microbatch} ${stream}`));
  const brush = timeline.brush(context, schedule);
  for (let other = 0; other < ops.count; other++) {
    if (!ops.parts(other).some(([, mb, , stream]) => wanted.has(`${mb} ${stream}`))) continue;
    const { top, height } = panel.rows[ops.device[other]].cell;
    paintCells(brush, schedule, ops, other, other + 1, Math.round((top - host.scrollTop) * ratio),
      height * ratio, true);
  }
}

function paintCursor(timeline, context) {
  const { ratio, colours, over, pointer } = timeline;
  if (pointer.x < GUTTER || pointer.x > GUTTER + timeline.plot) return;
  context.globalAlpha = 0.45;
  context.fillStyle = colours.soft;
  context.fillRect(Math.round(pointer.x * ratio), AXIS * ratio, 1, over.height);
  context.globalAlpha = 1;
  const digits = Math.max(0, 2 - Math.floor(Math.log10(timeline.span)));
  const text = timeline.timeAt(pointer.x).toFixed(Math.min(6, digits));
  context.font = `${11 * ratio}px ${colours.font}`;
  const width = context.measureText(text).width / ratio + 8;
  const x = Math.min(pointer.x + 1, GUTTER + timeline.plot - width);
  context.fillStyle = colours.ink;
  context.fillRect(x * ratio, 3 * ratio, width * ratio, 16 * ratio);
  write(timeline, context, text, x + 4, 11.5, { colour: colours.paper });
}
