// Handcrafted schedules: for each its placement, what it needs, its orders and its formulas.
// In the formulas s holds the numbers of the settings in ticks and quanta: P, m, V, F, B, W, c, A, C
// for one chunk. A formula answers null outside its region.

function linearRoute(devices) {
  return Array.from({ length: devices }, (_, device) => device);
}

function interleavedRoute(devices, chunks) {
  return Array.from({ length: devices * chunks }, (_, stage) => stage % devices);
}

function range(count, make) {
  return Array.from({ length: count }, (_, at) => make(at));
}

// fill forwards, then a forward and a backward in turn, then what is left.
function inTurn(forwards, backwards, fill) {
  return [...forwards.slice(0, fill), ...backwards.flatMap((backward, at) =>
    [...forwards.slice(fill + at, fill + at + 1), backward])];
}

function gpipeOrders({ P, m }) {
  return range(P, (stage) => [F, BW].flatMap((kind) => range(m, (mb) => [kind, mb, stage, 0])));
}

function oneOrders({ P, m }) {
  return range(P, (stage) => inTurn(range(m, (mb) => [F, mb, stage, 0]),
    range(m, (mb) => [BW, mb, stage, 0]), P - 1 - stage));
}

function groupSize({ P, m }) {
  const groups = Math.max(1, Math.floor(m / P));
  return m % groups ? null : m / groups;
}

// A device's ops of a kind: groups of N micro-batches, in each chunk after chunk.
function turns({ P, m, V }, kind, device, size) {
  const found = [];
  for (let first = 0; first < m; first += size) {
    for (let chunk = 0; chunk < V; chunk++) {
      const place = kind === F ? chunk : V - 1 - chunk;
      for (let mb = first; mb < Math.min(first + size, m); mb++) {
        found.push([kind, mb, place * P + device, 0]);
      }
    }
  }
  return found;
}

function interleavedOrders(s) {
  const size = groupSize(s);
  return range(s.P, (device) => inTurn(turns(s, F, device, size), turns(s, BW, device, size),
    2 * (s.P - 1 - device) + (s.V - 1) * size));
}

function breadthOrders({ P, m, V }) {
  return range(P, (device) => {
    const forwards = range(V, (chunk) => range(m, (mb) => [F, mb, chunk * P + device, 0])).flat();
    return [...forwards, ...[...forwards].reverse().map(([, ...rest]) => [BW, ...rest])];
  });
}

// Forwards to fill, then F, B and the W of `delay` backwards ago in turn.
function delayedWgts(forwards, acts, wgts, fill, delay) {
  return [...forwards.slice(0, fill), ...acts.flatMap((act, at) => [
    ...forwards.slice(fill + at, fill + at + 1), act,
    ...(at >= delay ? wgts.slice(at - delay, at - delay + 1) : []),
  ]), ...wgts.slice(Math.max(0, wgts.length - delay))];
}

function zeroBubbleOrders({ P, m }, depth) {
  return range(P, (stage) => {
    const [forwards, acts, wgts] = [F, B, W].map((kind) => range(m, (mb) => [kind, mb, stage, 0]));
    return delayedWgts(forwards, acts, wgts, depth * (P - 1 - stage), depth * stage);
  });
}

function interleavedZbOrders(s) {
  const size = groupSize(s);
  return range(s.P, (device) => {
    const [forwards, acts, wgts] = [F, B, W].map((kind) => turns(s, kind, device, size));
    return delayedWgts(forwards, acts, wgts, s.P - 1 - device + (s.V - 1) * size, device);
  });
}

function zbvOrders({ P, m }) {
  return range(P, (device) => {
    const order = [];
    const done = { [F]: [0, 0], [B]: [0, 0], [W]: [0, 0] };
    const take = (chunk, ...kinds) => kinds.forEach((kind) =>
      order.push([kind, done[kind][chunk]++, chunk ? 2 * P - 1 - device : device, 0]));
    const repeat = (count, step) => range(count, step);
    repeat(2 * (P - device) - 1, () => take(0, F));
    repeat(device, () => { take(1, F); take(0, F); });
    repeat(P - device, () => take(1, F, B, W));
    while (done[F][1] < m) {
      if (done[F][0] < m) take(0, F);
      take(0, B, W);
      take(1, F, B, W);
    }
    repeat(device, () => { take(0, B); take(1, B); });
    repeat(P - device, () => take(0, B, W));
    for (const chunk of [1, 0]) repeat(m - done[W][chunk], () => take(chunk, W));
    return order;
  });
}

const equalGroups = (s) => (groupSize(s) === null
  ? `needs m to be a multiple of the ${Math.floor(s.m / s.P)} groups of at least P micro-batches`
  : null);
const shortWgt = (s, least, lag) => s.m >= least && s.W <= Math.min(s.F, s.B) && lag * s.c <= s.W;

const FAMILIES = [
  {
    name: "gpipe", title: "GPipe", route: ({ P }) => linearRoute(P),
    orders: gpipeOrders, text: "(P−1)(F+BW+2c)", peakText: "m",
    idle: (s) => (s.P - 1) * (s.F + s.BW + 2 * s.c),
    peak: (s) => range(s.P, () => s.m * s.A),
  },
  {
    name: "1f1b", title: "1F1B", route: ({ P }) => linearRoute(P),
    orders: oneOrders, text: "(P−1)(F+BW) + 2c((P−1)m/P + P−2)", peakText: "min(m, P−r)",
    idle: (s) => {
      if (s.c && s.m % s.P) return null;
      const lags = s.c && s.P > 1 ? 2 * (Math.floor(((s.P - 1) * s.m) / s.P) + s.P - 2) : 0;
      return (s.P - 1) * (s.F + s.BW) + lags * s.c;
    },
    peak: (s) => range(s.P, (r) => Math.min(s.m, s.P - r) * s.A),
  },
  {
    name: "interleaved", title: "interleaved 1F1B", least: 2,
    route: ({ P, V }) => interleavedRoute(P, V), orders: interleavedOrders, refuses: equalGroups,
    text: "(P−1)(F+BW)/V + 2c(PV−1)", peakText: "(2(P−1−r) + (V−1)N + 1)/V",
    idle: (s) => {
      const size = groupSize(s);
      if (size < s.P || (s.c && (size !== s.P || s.m % s.P || 2 * s.c > Math.min(s.F, s.BW)))) {
        return null;
      }
      return s.P === 1 ? 0 : (s.P - 1) * (s.F + s.BW) + 2 * (s.P * s.V - 1) * s.c;
    },
    peak: (s) => range(s.P, (r) =>
      Math.min(s.m * s.V, 2 * (s.P - 1 - r) + (s.V - 1) * groupSize(s) + 1) * s.A),
  },
  {
    name: "bfs", title: "breadth-first", least: 2,
    route: ({ P, V }) => interleavedRoute(P, V), orders: breadthOrders,
    text: "(P−1)((F+BW)/V + 2c)", peakText: "m",
    idle: (s) => (s.m < s.P || s.P * s.c > (s.m - s.P) * Math.min(s.F, s.BW) ? null
      : (s.P - 1) * (s.F + s.BW + 2 * s.c)),
    peak: (s) => range(s.P, () => s.m * s.V * s.A),
  },
  {
    name: "zb-h1", title: "ZB-H1", route: ({ P }) => linearRoute(P),
    orders: (s) => zeroBubbleOrders(s, 1), text: "(P−1)(F+B−W+4c)", peakText: "P−r, and r of W",
    idle: (s) => (shortWgt(s, s.P + 1, 2) ? (s.P - 1) * (s.F + s.B - s.W + 4 * s.c) : null),
    peak: (s) => zeroBubblePeak(s, 1),
  },
  {
    name: "zb-h2", title: "ZB-H2", route: ({ P }) => linearRoute(P),
    orders: (s) => zeroBubbleOrders(s, 2), peakText: "2(P−r)−1, and 2r of W",
    text: "(P−1) max(F+c, F+B−2W+2c)", spanText: "(P−1)(F+B−2W+2c)",
    idle: (s, span) => {
      if (!shortWgt(s, 2 * s.P - 1, 1)) return null;
      const drained = s.F + s.B - 2 * s.W + 2 * s.c;
      return (s.P - 1) * (span ? drained : Math.max(s.F + s.c, drained));
    },
    peak: (s) => zeroBubblePeak(s, 2),
  },
  {
    name: "interleaved-zb", title: "interleaved ZB", least: 2,
    route: ({ P, V }) => interleavedRoute(P, V), orders: interleavedZbOrders, refuses: equalGroups,
    text: "(P−1)(F+B−W)/V", peakText: "(P−r + (V−1)N)/V, and r of W",
    idle: (s) => (groupSize(s) < s.P || s.c || s.W > Math.min(s.F, s.B) ? null
      : (s.P - 1) * (s.F + s.B - s.W)),
    peak: (s) => range(s.P, (r) => filledPeak(s, s.P - 1 - r + (s.V - 1) * groupSize(s), r)),
  },
  {
    name: "zb-v", title: "ZB-V", orders: zbvOrders,
    route: ({ P }) => [...linearRoute(P), ...linearRoute(P).reverse()],
    refuses: ({ P, m }) => (m < 2 * P - 1 ? `needs m ≥ 2P−1 = ${2 * P - 1}` : null),
    text: "(P−1)F/2", spanText: "0", peakText: "P",
    idle: (s, span) => (s.c || s.F !== s.B || s.B !== s.W ? null : span ? 0 : (s.P - 1) * s.F),
    peak: (s) => (s.A === s.C ? range(s.P, () => 2 * s.P * s.A) : null),
  },
];

// Filled forwards and the one at work, and the W's that wait when the last F starts.
function filledPeak(s, fill, delay) {
  const total = s.m * s.V;
  return Math.min(total, fill + 1) * s.A + Math.max(0, Math.min(delay, total - 1 - fill)) * s.C;
}

function zeroBubblePeak(s, depth) {
  return range(s.P, (r) => filledPeak(s, depth * (s.P - 1 - r), depth * r));
}

// Settings hold P, m, V, and times and memory in units; every chunk gets its share of them.
function problemOf(family, settings) {
  const { P, m, V, times, limit, objective } = settings;
  const route = family.route({ P, V });
  const chunks = route.length / P;
  const [perTime, perMemory] = [gridOf(times.slice(0, 4)), gridOf(times.slice(4))];
  const [f, b, w, comm] = times.map((time) => Math.round(time * perTime));
  const context = Math.round(times[4] * perMemory);
  return {
    devices: P, placement: family.name, objective, time: "unit", memory: "activation unit",
    ticksPerUnit: perTime * chunks, quantaPerUnit: perMemory * chunks, comm: comm * chunks,
    limits: range(P, () => (limit > 0 ? limit * perMemory * chunks : null)),
    streams: [{ name: "", microbatches: m, route }],
    stages: route.map(() => [f, b, w, b + w, f + b + w, perMemory, context]),
  };
}

// The coarsest power of ten, from 10 up, of which all values are whole parts.
function gridOf(values) {
  let grid = 10;
  while (grid < 1e6 && values.some((value) => Math.abs(grid * value - Math.round(grid * value)) > 1e-6)) {
    grid *= 10;
  }
  return grid;
}

// The numbers formulas are made of.
function symbols(problem, { P, m }) {
  const [f, b, w, bw, , a, c] = problem.stages[0];
  return { P, m, V: problem.stages.length / P, F: f, B: b, W: w, BW: bw, c: problem.comm, A: a, C: c };
}

// A family's schedule for the settings with what its formulas say, or the reason why it has none.
function buildFamily(family, settings) {
  const needed = family.least && settings.V < family.least ? `needs V ≥ ${family.least}` : null;
  const reason = needed || family.refuses?.(settings) || null;
  if (reason) return { family, reason };
  const problem = problemOf(family, settings);
  const s = symbols(problem, settings);
  const schedule = scheduleOf(problem, family.orders(s), { title: family.title, label: family.name });
  const span = settings.objective === "span";
  const idle = family.idle(s, span);
  const peaks = s.C <= s.A ? family.peak(s) : null;
  return {
    family, schedule,
    formula: {
      text: (span && family.spanText) || family.text,
      idle: idle === null ? null : idle / problem.ticksPerUnit,
      peaks: peaks && peaks.map((peak) => peak / problem.quantaPerUnit),
    },
  };
}
