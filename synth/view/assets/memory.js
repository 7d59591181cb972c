// What devices hold over time. An op takes at its start and gives back at its end.

// The quanta an op's part takes and frees, for a stage's costs.
function partMemory(kind, cost) {
  const [activation, context] = [cost[5], cost[6]];
  const growth = Math.max(0, context - activation);
  if (kind === F) return [activation, 0];
  if (kind === B) return [growth, Math.max(0, activation - context)];
  if (kind === W) return [0, context];
  return [growth, growth + activation];
}

// Per op: held while it runs and after it; per device the peak.
function memoryOf(problem, ops) {
  const during = new Float64Array(ops.count);
  const after = new Float64Array(ops.count);
  const peaks = [];
  for (let device = 0; device + 1 < ops.first.length; device++) {
    let held = 0;
    let peak = 0;
    for (let op = ops.first[device]; op < ops.first[device + 1]; op++) {
      let freed = 0;
      for (const [kind, , stage] of ops.parts(op)) {
        const change = partMemory(kind, costOf(problem, device, stage));
        held += change[0];
        freed += change[1];
      }
      during[op] = held;
      peak = Math.max(peak, held);
      held -= freed;
      after[op] = held;
    }
    peaks.push(peak);
  }
  return { during, after, peaks };
}

// The top of the memory scale, the same for all devices of a schedule.
function memoryTop(schedule) {
  const limits = schedule.problem.limits.filter((limit) => limit !== null);
  return Math.max(1, ...schedule.memory.peaks, ...limits);
}
