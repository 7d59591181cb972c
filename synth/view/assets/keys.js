// What the keyboard does. Letters move the view, arrows move the selection once there is one.

const KEYS = [
  ["W S  + −", "zoom"], ["A D  ← →", "pan"], ["0", "everything"], ["Enter", "zoom to the selection"],
  ["click", "select an op"], ["arrows", "walk along a device, or to the next"],
  ["P  N", "to what binds it, to what it feeds"], ["F", "follow its micro-batch"],
  ["Esc", "select nothing"], ["/", "go to an op by name"],
  ["B I M X", "bubbles, in flight, measured, transfers"], ["T", "light or dark"],
  ["wheel", "zoom; with Shift pan"], ["drag", "pan"],
];

function bindKeys(timeline, actions) {
  addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (typing && event.target.type !== "range" && event.target.type !== "checkbox") return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.type === "range" && event.key.startsWith("Arrow")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const done = viewKey(timeline, key) || (timeline.selected && selectionKey(timeline, key))
      || arrowKey(timeline, key) || actions[key]?.();
    if (done) event.preventDefault();
  });
}

function viewKey(timeline, key) {
  const moves = {
    w: () => timeline.zoom(1 / 1.4), "+": () => timeline.zoom(1 / 1.4),
    "=": () => timeline.zoom(1 / 1.4), s: () => timeline.zoom(1.4), "-": () => timeline.zoom(1.4),
    a: () => timeline.pan(-timeline.plot / 5), d: () => timeline.pan(timeline.plot / 5),
    0: () => timeline.fit(), Home: () => timeline.fit(),
  };
  if (!moves[key]) return false;
  moves[key]();
  return true;
}

function arrowKey(timeline, key) {
  const steps = { ArrowLeft: -1, ArrowRight: 1 };
  if (!steps[key]) return false;
  timeline.pan((steps[key] * timeline.plot) / 5);
  return true;
}

function selectionKey(timeline, key) {
  const { schedule, op } = timeline.selected;
  const to = neighbour(schedule, op, key);
  if (to !== undefined) {
    if (to >= 0) timeline.select(schedule, to);
    return true;
  }
  if (key === "Escape") timeline.select(schedule, -1);
  else if (key === "Enter") zoomTo(timeline, schedule, op);
  else return false;
  return true;
}

// The op a key leads to, -1 for none, undefined for keys that lead nowhere.
function neighbour(schedule, op, key) {
  const { ops } = schedule;
  const device = ops.device[op];
  const beside = (other) => (other < 0 || other >= schedule.problem.devices ? -1
    : opAtOrBefore(ops, other, ops.start[op]));
  switch (key) {
    case "ArrowLeft": return op > ops.first[device] ? op - 1 : -1;
    case "ArrowRight": return op + 1 < ops.first[device + 1] ? op + 1 : -1;
    case "ArrowUp": return beside(device - 1);
    case "ArrowDown": return beside(device + 1);
    case "p": return schedule.binding(op).op;
    case "n": return schedule.outputs(op)[0]?.op ?? -1;
    default: return undefined;
  }
}

function zoomTo(timeline, schedule, op) {
  const unit = schedule.problem.ticksPerUnit;
  const length = (schedule.ops.end[op] - schedule.ops.start[op]) / unit;
  const middle = (schedule.ops.start[op] - schedule.origin) / unit + length / 2;
  timeline.moveTo(middle - 12 * length, 24 * length);
}

// Find an op by its spelling, the first schedule that has it first.
function goTo(timeline, text) {
  const match = /^(F|BW|B|W)(\d+)@(\d+)(?:\/(.+))?$/i.exec(text.trim());
  if (!match) return false;
  const kind = KINDS.indexOf(match[1].toUpperCase());
  for (const schedule of timeline.schedules) {
    const { streams, stages } = schedule.problem;
    const stream = streams.findIndex(({ name }) => name === (match[4] || streams[0].name));
    if (stream < 0 || Number(match[3]) >= stages.length) continue;
    if (Number(match[2]) >= streams[stream].microbatches) continue;
    const op = schedule.find([kind === BW ? B : kind, Number(match[2]), Number(match[3]), stream]);
    if (op < 0) continue;
    timeline.select(schedule, op);
    return true;
  }
  return false;
}
