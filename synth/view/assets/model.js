// Schedules as typed arrays: what runs where and when, and what waits for what.

const KINDS = ["F", "B", "W", "BW", "FB"];
const [F, B, W, BW, FB] = [0, 1, 2, 3, 4];

// One array per property; the ops of device d are first[d] .. first[d + 1] - 1, by start.
class Ops {
  constructor(count, devices) {
    this.count = count;
    this.kind = new Uint8Array(count);
    this.microbatch = new Int32Array(count);
    this.stage = new Int32Array(count);
    this.stream = new Uint8Array(count);
    this.start = new Float64Array(count);
    this.end = new Float64Array(count);
    this.device = new Uint16Array(count);
    this.partner = new Map();
    this.first = new Int32Array(devices + 1);
  }

  // The simple ops an op consists of: the F and the backward of a pair, else the op itself.
  parts(op) {
    const kind = this.kind[op];
    const own = [kind === FB ? F : kind, this.microbatch[op], this.stage[op], this.stream[op]];
    return kind === FB ? [own, this.partner.get(op)] : [own];
  }

  // The F, B and W nodes it executes, each as [kind, micro-batch, stage, stream].
  nodes(op) {
    return this.parts(op).flatMap(([kind, ...rest]) =>
      kind === BW ? [[B, ...rest], [W, ...rest]] : [[kind, ...rest]]);
  }

  name(op, streams) {
    return this.parts(op).map((part) => spell(part, streams)).join("+");
  }
}

function spell([kind, microbatch, stage, stream], streams) {
  const name = streams[stream].name;
  return `${KINDS[kind]}${microbatch}@${stage}${name ? `/${name}` : ""}`;
}

function countOps(numbers) {
  let count = 0;
  for (let at = 0; at < numbers.length; at += numbers[at] === FB ? 10 : 6) count++;
  return count;
}

// Read the numbers of every device; `scale` turns their ticks into those of the plan.
function decodeOps(devices, scale = 1) {
  const ops = new Ops(devices.reduce((sum, row) => sum + countOps(row), 0), devices.length);
  let op = 0;
  devices.forEach((row, device) => {
    ops.first[device] = op;
    let clock = 0;
    for (let at = 0; at < row.length; op++) {
      const [kind, microbatch, stage, stream, wait, ticks] = row.slice(at, at + 6);
      ops.kind[op] = kind;
      ops.microbatch[op] = microbatch;
      ops.stage[op] = stage;
      ops.stream[op] = stream;
      ops.device[op] = device;
      ops.start[op] = (clock + wait) / scale;
      clock += wait + ticks;
      ops.end[op] = clock / scale;
      at += 6;
      if (kind === FB) {
        ops.partner.set(op, row.slice(at, at + 4));
        at += 4;
      }
    }
  });
  ops.first[devices.length] = op;
  return ops;
}

// A schedule: its problem, its ops, and an index from node to the op that executes it.
class Schedule {
  constructor(problem, ops, rest) {
    this.problem = problem;
    this.ops = ops;
    Object.assign(this, rest);
    this.mostMicrobatches = Math.max(...problem.streams.map((stream) => stream.microbatches));
    this.index = null;
    this.origin = Infinity;
    this.last = 0;
    for (let op = 0; op < ops.count; op++) {
      this.origin = Math.min(this.origin, ops.start[op]);
      this.last = Math.max(this.last, ops.end[op]);
    }
    this.memory = memoryOf(problem, ops);
    this.chunks = chunksOf(problem);
  }

  slot([kind, microbatch, stage, stream]) {
    const row = stream * this.problem.stages.length + stage;
    return (row * this.mostMicrobatches + microbatch) * 3 + kind;
  }

  // The op that executes a node, -1 for none. The index is made when it is first needed.
  find(node) {
    if (!this.index) {
      const { streams, stages } = this.problem;
      this.index = new Int32Array(streams.length * stages.length * this.mostMicrobatches * 3).fill(-1);
      for (let op = 0; op < this.ops.count; op++) {
        for (const own of this.ops.nodes(op)) this.index[this.slot(own)] = op;
      }
    }
    return this.index[this.slot(node)];
  }

  name(op) {
    return this.ops.name(op, this.problem.streams);
  }

  // What an op waits for: {op, node, arrival}, the op before it on its device left out.
  inputs(op) {
    return this.linked(op, nodeInputs).map(({ op: before, node }) => ({
      op: before, node, arrival: this.ops.end[before] + this.lag(before, op),
    }));
  }

  // What waits for an op: {op, node, arrival}.
  outputs(op) {
    return this.linked(op, nodeOutputs).map(({ op: after, node }) => ({
      op: after, node, arrival: this.ops.end[op] + this.lag(op, after),
    }));
  }

  linked(op, neighbours) {
    const found = new Map();
    for (const node of this.ops.nodes(op)) {
      for (const other of neighbours(node, this.problem)) {
        const at = this.find(other);
        if (at >= 0 && at !== op && !found.has(at)) found.set(at, { op: at, node: other });
      }
    }
    return [...found.values()];
  }

  lag(from, to) {
    return hopTicks(this.problem, this.ops.device[from], this.ops.device[to]);
  }

  // The op that keeps an op from starting earlier, and by what: {op, via, slack}.
  binding(op) {
    const { ops } = this;
    const before = op > ops.first[ops.device[op]] ? op - 1 : -1;
    let latest = before < 0 ? { op: -1, via: "start", at: this.origin }
      : { op: before, via: "order", at: ops.end[before] };
    for (const input of this.inputs(op)) {
      const via = ops.device[input.op] === ops.device[op] ? "data" : "transfer";
      if (input.arrival > latest.at) latest = { op: input.op, via, at: input.arrival };
    }
    return { op: latest.op, via: latest.via, slack: ops.start[op] - latest.at };
  }
}

function* nodeInputs([kind, microbatch, stage, stream], problem) {
  if (kind === F) for (const other of stagesBefore(problem, stage)) yield [F, microbatch, other, stream];
  if (kind === B) yield [F, microbatch, stage, stream];
  if (kind === B) for (const other of stagesBehind(problem, stage)) yield [B, microbatch, other, stream];
  if (kind === W) yield [B, microbatch, stage, stream];
}

function* nodeOutputs([kind, microbatch, stage, stream], problem) {
  if (kind === F) for (const other of stagesBehind(problem, stage)) yield [F, microbatch, other, stream];
  if (kind === F) yield [B, microbatch, stage, stream];
  if (kind === B) for (const other of stagesBefore(problem, stage)) yield [B, microbatch, other, stream];
  if (kind === B) yield [W, microbatch, stage, stream];
}

// The stages that a stage needs, and those that need it; without `needs` they are a chain.
function stagesBefore({ needs }, stage) {
  if (needs) return needs[stage];
  return stage > 0 ? [stage - 1] : [];
}

function stagesBehind({ needs, stages }, stage) {
  if (needs) return stages.map((_, other) => other).filter((other) => needs[other].includes(stage));
  return stage + 1 < stages.length ? [stage + 1] : [];
}

// The latency between two devices; some links may have their own.
function hopTicks(problem, source, target) {
  if (source === target) return 0;
  const link = problem.links?.find(([from, to]) => from === source && to === target);
  return link ? link[2] : problem.comm;
}

function hasLatency(problem) {
  return problem.comm > 0 || Boolean(problem.links?.some(([, , lag]) => lag > 0));
}

// What a stage costs on a device; some devices may have costs of their own.
function costOf(problem, device, stage) {
  const own = problem.deviceCosts?.find(([where, which]) => where === device && which === stage);
  return own ? own.slice(2) : problem.stages[stage];
}

// For every stream and stage, which of its device's chunks it is: 0 for the first.
function chunksOf(problem) {
  return problem.streams.map(({ route }) =>
    route.map((device, stage) => route.slice(0, stage).filter((d) => d === device).length));
}

// The last op of a device that starts at or before a tick, else its first.
function opAtOrBefore(ops, device, tick) {
  let low = ops.first[device];
  let high = ops.first[device + 1] - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (ops.start[middle] <= tick) low = middle;
    else high = middle - 1;
  }
  return low;
}

function readSchedule(data) {
  const schedule = new Schedule(data.problem, decodeOps(data.devices), {
    label: data.label,
    title: data.name,
    figures: data.figures,
    violations: data.violations,
    invalid: data.invalid,
    causes: data.causes,
    idle: data.idle,
    measured: null,
  });
  if (data.measured) {
    const { devices, ticksPerPlanTick, ...rest } = data.measured;
    schedule.measured = { ...rest, ops: decodeOps(devices, ticksPerPlanTick) };
    schedule.measured.ticksPerPlanTick = ticksPerPlanTick;
  }
  return schedule;
}

// A number with at most `digits` decimals and no trailing zeros.
function number(value, digits = 3) {
  return String(Number(value.toFixed(digits)));
}

function percent(share) {
  return `${(100 * share).toFixed(1)}%`;
}
