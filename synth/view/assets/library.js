// The solved schedules that come with the page, and which settings each of them answers.

// The settings that a solved schedule of equal stages answers, null when sliders cannot be set so.
function settingsOf({ problem }) {
  const { devices: P, stages, streams, ticksPerUnit, quantaPerUnit, objective } = problem;
  const [f, b, w, fused, , a, context] = stages[0];
  const chunks = stages.length / P;
  const m = streams.reduce((sum, stream) => sum + stream.microbatches, 0);
  const even = stages.every((cost) => cost.every((value, at) => value === stages[0][at]));
  const ownUnits = Math.abs((a * chunks) / quantaPerUnit - 1) < 1e-6 && fused === b + w;
  if (!even || !ownUnits || P > 16 || m > 64) return null;
  const times = [...[f, b, w].map((ticks) => (ticks * chunks) / ticksPerUnit),
    problem.comm / ticksPerUnit, (context * chunks) / quantaPerUnit];
  return { P, m, times: times.map((value) => Number(value.toFixed(6))), objective };
}

function sameProblem(a, b) {
  return a.P === b.P && a.m === b.m && a.objective === b.objective
    && a.times.every((value, at) => Math.abs(value - b.times[at]) < 1e-9);
}

// Schedules by the settings that they answer; those that answer none make a group each problem.
function groupLibrary(library) {
  const groups = [];
  for (const schedule of library) {
    const settings = settingsOf(schedule);
    const group = settings && groups.find((other) =>
      other.settings && sameProblem(other.settings, settings));
    if (group) group.members.push(schedule);
    else groups.push({ settings, members: [schedule] });
  }
  for (const { members } of groups) {
    members.sort((a, b) => a.problem.placement.localeCompare(b.problem.placement)
      || limitOf(a) - limitOf(b));
  }
  return groups;
}

function peakOf({ memory, problem }) {
  return Math.max(...memory.peaks) / problem.quantaPerUnit;
}

// What a device may hold, in activation units; what it does hold where there is no limit.
function limitOf(schedule) {
  const { limits, quantaPerUnit } = schedule.problem;
  const given = limits.filter((limit) => limit !== null);
  return given.length === limits.length ? Math.max(...given) / quantaPerUnit : peakOf(schedule);
}

function proofText({ figures }) {
  return figures.optimal ? `optimal, by ${figures.proof.split(":")[0]}`
    : `bound ${number(figures.bound)}, gap ${percent(figures.gap)}`;
}

function problemText({ P, m, times, objective }) {
  const [f, b, w, c, context] = times.map((value) => number(value, 4));
  return `P ${P}  m ${m}  F,B,W ${f},${b},${w}  hop ${c}  W memory ${context}  ${objective}`;
}

function solvedRows(schedule) {
  const { label, problem, figures } = schedule;
  const settings = settingsOf(schedule);
  return [["", `${label}.json`],
    ["solves", settings ? problemText(settings) : `P ${problem.devices}, unequal stages`],
    ["placed", problem.placement],
    ["limit", number(limitOf(schedule), 3)],
    ["takes", `${problem.objective} ${number(figures[problem.objective])}, ${proofText(schedule)}`],
    ["bubble", percent(figures.bubble)]];
}

// A point of the chart; pressing it is left to the page.
function solvedPoint(schedule, rest) {
  return {
    id: schedule.label, x: limitOf(schedule), y: schedule.figures.bubble,
    mark: schedule.figures.optimal ? "proved" : "open", rows: solvedRows(schedule), ...rest,
  };
}
