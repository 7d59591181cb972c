// The simulator of the playground: earliest times for given orders, and the least span.
// An order is, per device, a list of ops [kind, micro-batch, stage, stream].

function opTicks(problem, [kind, , stage]) {
  return problem.stages[stage][kind];
}

function* simpleNodes([kind, ...rest]) {
  if (kind !== BW) yield [kind, ...rest];
  else {
    yield [B, ...rest];
    yield [W, ...rest];
  }
}

// Start every op as soon as its order and its inputs allow; device d not before releases[d].
// Returns the starts per device.
function earliest(problem, orders, releases) {
  const { first, inputs, lags, outputs, ticks, slots } = orders.plan ||= planOf(problem, orders);
  const done = new Float64Array(slots + 2).fill(-1);
  done[slots] = 0;
  const clock = releases ? [...releases] : orders.map(() => 0);
  const next = first.slice(0, -1);
  const starts = new Float64Array(ticks.length);
  for (let moved = true; moved;) {
    moved = false;
    for (let device = 0; device < orders.length; device++) {
      for (let op = next[device]; op < first[device + 1]; op++) {
        const [one, two] = [done[inputs[2 * op]], done[inputs[2 * op + 1]]];
        if (one < 0 || two < 0) break;
        const start = Math.max(clock[device], one + lags[2 * op], two + lags[2 * op + 1]);
        starts[op] = start;
        clock[device] = done[outputs[2 * op]] = done[outputs[2 * op + 1]] = start + ticks[op];
        next[device] = op + 1;
        moved = true;
      }
    }
  }
  if (orders.some((_, device) => next[device] < first[device + 1])) {
    throw new Error("the orders wait for each other");
  }
  return orders.map((_, device) => starts.subarray(first[device], first[device + 1]));
}

// Of every op, two nodes that it waits for with their lags, and two that it executes, as slots in
// an array of end times. The slot behind the last node always has ended; one more is written only.
function planOf(problem, orders) {
  const most = Math.max(...problem.streams.map(({ microbatches }) => microbatches));
  const stages = problem.stages.length;
  const slots = problem.streams.length * stages * most * 3;
  const slot = ([kind, microbatch, stage, stream]) =>
    ((stream * stages + stage) * most + microbatch) * 3 + kind;
  const first = [0];
  for (const order of orders) first.push(first.at(-1) + order.length);
  const count = first.at(-1);
  const inputs = new Int32Array(2 * count).fill(slots);
  const lags = new Float64Array(2 * count);
  const outputs = new Int32Array(2 * count).fill(slots + 1);
  const ticks = new Float64Array(count);
  orders.forEach((order, device) => order.forEach((op, index) => {
    const at = first[device] + index;
    let [read, written] = [2 * at, 2 * at];
    ticks[at] = opTicks(problem, op);
    for (const node of simpleNodes(op)) {
      outputs[written++] = slot(node);
      if (op[0] === BW && node[0] === W) continue; // its B is the op itself
      for (const before of nodeInputs(node, problem)) {
        const from = problem.streams[before[3]].route[before[2]];
        lags[read] = hopTicks(problem, from, device);
        inputs[read++] = slot(before);
      }
    }
  }));
  return { first, inputs, lags, outputs, ticks, slots };
}

// The best times for given orders: the earliest, or those of the least span.
function retime(problem, orders) {
  const best = earliest(problem, orders);
  if (problem.objective === "makespan") return best;
  const last = (starts, device) => {
    const end = starts[device].length - 1;
    return starts[device][end] + opTicks(problem, orders[device][end]);
  };
  const firsts = best.map((row) => row[0]);
  const ends = best.map((_, device) => last(best, device));
  const released = Math.max(...ends);
  // How much later than a device's first start the others end because of it.
  const reach = orders.map((_, device) => {
    const starts = earliest(problem, orders, orders.map((_, other) => (other === device ? released : 0)));
    return orders.map((_, other) => last(starts, other) - released);
  });
  let low = Math.max(...orders.map((order) => order.reduce((sum, op) => sum + opTicks(problem, op), 0)));
  let high = Math.max(...ends.map((end, device) => end - firsts[device]));
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (firstStarts(firsts, ends, reach, middle)) high = middle;
    else low = middle + 1;
  }
  return earliest(problem, orders, firstStarts(firsts, ends, reach, high));
}

// The earliest first starts at which no device's span exceeds the window; null without any.
function firstStarts(firsts, ends, reach, window) {
  let starts = [...firsts];
  const late = [...ends];
  for (let round = 0; round <= firsts.length; round++) {
    starts.forEach((start, device) => reach[device].forEach((ticks, other) => {
      if (ticks > 0) late[other] = Math.max(late[other], start + ticks);
    }));
    const pushed = starts.map((start, device) => Math.max(start, late[device] - window));
    if (pushed.every((start, device) => start === starts[device])) return starts;
    starts = pushed;
  }
  return null;
}

// A schedule of given orders, with figures in the user's units.
function scheduleOf(problem, orders, rest) {
  const starts = retime(problem, orders);
  const ops = new Ops(orders.reduce((sum, order) => sum + order.length, 0), orders.length);
  let at = 0;
  orders.forEach((order, device) => {
    ops.first[device] = at;
    order.forEach((op, index) => {
      [ops.kind[at], ops.microbatch[at], ops.stage[at], ops.stream[at]] = op;
      ops.device[at] = device;
      ops.start[at] = starts[device][index];
      ops.end[at++] = starts[device][index] + opTicks(problem, op);
    });
  });
  ops.first[orders.length] = at;
  const schedule = new Schedule(problem, ops, { causes: PLAYGROUND_CAUSES, idle: [], ...rest });
  schedule.figures = simulatedFigures(schedule);
  return schedule;
}

function simulatedFigures({ problem, ops, origin, last }) {
  let [busy, span, idle] = [0, 0, 0];
  const devices = problem.devices;
  for (let device = 0; device < devices; device++) {
    const [first, end] = [ops.first[device], ops.first[device + 1]];
    const own = ops.end[end - 1] - ops.start[first];
    let work = 0;
    for (let op = first; op < end; op++) work += ops.end[op] - ops.start[op];
    const time = problem.objective === "makespan" ? last - origin : own;
    idle = Math.max(idle, time - work);
    span = Math.max(span, own);
    busy += work;
  }
  const value = problem.objective === "makespan" ? last - origin : span;
  return {
    makespan: (last - origin) / problem.ticksPerUnit,
    span: span / problem.ticksPerUnit,
    idle: idle / problem.ticksPerUnit,
    bubble: 1 - busy / (devices * value),
  };
}

const PLAYGROUND_CAUSES = ["fill", "input", "transfer", "drain"];

// Every device's idle time by cause, as far as the times alone tell.
function addIdle(schedule) {
  if (schedule.idle.length) return schedule;
  for (let device = 0; device < schedule.problem.devices; device++) {
    schedule.idle.push(idleOf(schedule, device));
  }
  return schedule;
}

function idleOf(schedule, device) {
  const { ops, origin, last } = schedule;
  const [first, end] = [ops.first[device], ops.first[device + 1]];
  const found = [[origin, ops.start[first], 0]];
  for (let op = first + 1; op < end; op++) {
    const [from, to] = [ops.end[op - 1], ops.start[op]];
    if (from === to) continue;
    const { op: source } = schedule.binding(op);
    const lag = source < 0 ? 0 : Math.min(to - from, schedule.lag(source, op));
    found.push([from, to - lag, 1], [to - lag, to, 2]);
  }
  found.push([ops.end[end - 1], last, 3]);
  return found.filter(([from, to]) => from < to);
}
