// Painting one row: cells when there is room for them, shares per pixel column when there is not.
// A brush says where: {context, ratio, colours, left, right, at(tick)}, all in device pixels.

const DENSE = 0.4; // ops per pixel from which on a row is painted by shares

function visibleOps(ops, device, brush) {
  const end = ops.first[device + 1];
  const first = opAtOrBefore(ops, device, brush.tick(brush.left));
  let last = opAtOrBefore(ops, device, brush.tick(brush.right));
  last = ops.start[last] > brush.tick(brush.right) ? last - 1 : last;
  return [first, Math.min(last + 1, end)];
}

function paintOps(brush, schedule, ops, device, y, height, labels) {
  const [first, last] = visibleOps(ops, device, brush);
  if (last - first > DENSE * (brush.right - brush.left)) {
    paintShares(brush, schedule, ops, first, last, y, height);
  } else {
    paintCells(brush, schedule, ops, first, last, y, height, labels);
  }
}

function paintCells(brush, schedule, ops, first, last, y, height, labels) {
  const { context, ratio } = brush;
  const batches = new Map();
  const add = (fill, x, top, width, tall) => {
    if (!batches.has(fill)) batches.set(fill, []);
    batches.get(fill).push(x, top, width, tall);
  };
  const texts = [];
  for (let op = first; op < last; op++) {
    const x = Math.max(brush.at(ops.start[op]), brush.left - 9);
    const end = Math.min(brush.at(ops.end[op]), brush.right + 9);
    if (end < brush.left || x > brush.right) continue;
    const width = Math.max(ratio, end - x - (end - x > 3 * ratio ? ratio : 0));
    cellShapes(brush, schedule, ops, op, { x, y, width, height }, add);
    if (labels && width >= 8 * ratio) texts.push(op, x, width);
  }
  for (const [fill, boxes] of batches) {
    context.fillStyle = fill;
    for (let at = 0; at < boxes.length; at += 4) {
      context.fillRect(boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3]);
    }
  }
  for (let at = 0; at < texts.length; at += 3) {
    paintLabel(brush, schedule, ops, texts[at], texts[at + 1], texts[at + 2], y, height);
  }
}

// F, B and W are plain; BW is a B standing on a W; FB is an F above its backward. The streams
// behind the first wear a stripe, two for the third, and so on.
function cellShapes(brush, schedule, ops, op, box, add) {
  const { ratio, colours } = brush;
  const parts = ops.parts(op);
  const tall = Math.floor(box.height / parts.length);
  parts.forEach(([kind, , stage, stream], at) => {
    const [chunk, chunks] = chunkOf(schedule, stage, stream);
    const top = box.y + at * tall;
    const high = at + 1 < parts.length ? tall : box.height - at * tall;
    add(colours.fill(kind === BW ? B : kind, chunk, chunks).fill, box.x, top, box.width, high);
    if (kind === BW) {
      const foot = Math.max(ratio, Math.round(high * 0.24));
      add(colours.fill(W, chunk, chunks).fill, box.x, top + high - foot, box.width, foot);
    }
    for (let stripe = 0; stripe < stream && box.width > 3 * ratio; stripe++) {
      add(colours.paper, box.x + ratio, top + (2 + 3 * stripe) * ratio, box.width - 2 * ratio,
        1.5 * ratio);
    }
  });
}

function chunkOf(schedule, stage, stream) {
  const device = schedule.problem.streams[stream].route[stage];
  const held = schedule.problem.streams[stream].route.filter((d) => d === device).length;
  return [schedule.chunks[stream][stage], held];
}

function paintLabel(brush, schedule, ops, op, x, width, y, height) {
  const { context, ratio, colours } = brush;
  const parts = ops.parts(op);
  const whole = brush.exact(ops.end[op]) - brush.exact(ops.start[op]); // alike for equal ops
  const tall = height / parts.length;
  const size = Math.min(11, Math.floor(tall / ratio) - 2);
  if (size < 7) return;
  context.font = `${size * ratio}px ${colours.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  parts.forEach(([kind, microbatch, stage, stream], at) => {
    const letter = stream ? KINDS[kind].toLowerCase() : KINDS[kind];
    const room = (Math.min(whole, width + 2 * ratio) / ratio - 4) / (0.62 * size);
    const digits = String(microbatch);
    const text = room >= digits.length + letter.length ? letter + digits : digits;
    if (room < text.length) return;
    const [chunk, chunks] = chunkOf(schedule, stage, stream);
    context.fillStyle = colours.fill(kind === BW ? B : kind, chunk, chunks).text;
    const lift = kind === BW ? -0.11 * tall : stream && parts.length === 1 ? 1.5 * ratio : 0;
    context.fillText(text, x + width / 2, y + (at + 0.5) * tall + lift + 0.5 * ratio);
  });
}

// Columns are stacked from the shares of their time spent in F, B and W; the rest is idle. They are
// wide enough for a dozen ops, so that the rhythm of ops and that of pixels do not interfere.
function paintShares(brush, schedule, ops, first, last, y, height) {
  const columns = brush.right - brush.left;
  const wide = Math.max(1, Math.ceil((12 * columns) / (last - first)));
  const shares = [F, B, W].map(() => new Float32Array(Math.ceil(columns / wide) + 1));
  const of = schedule.problem.stages.map((cost) => cost[1] / (cost[1] + cost[2]));
  for (let op = first; op < last; op++) {
    const from = Math.max(0, brush.exact(ops.start[op]) - brush.left) / wide;
    const to = Math.min(columns, brush.exact(ops.end[op]) - brush.left) / wide;
    const parts = ops.parts(op);
    for (let column = Math.floor(from); column < to; column++) {
      const part = (Math.min(to, column + 1) - Math.max(from, column)) / parts.length;
      for (const [kind, , stage] of parts) {
        if (kind === BW) {
          shares[B][column] += part * of[stage];
          shares[W][column] += part * (1 - of[stage]);
        } else {
          shares[kind][column] += part;
        }
      }
    }
  }
  const image = brush.context.createImageData(columns, height);
  const pixels = new Uint32Array(image.data.buffer);
  const inks = [F, B, W].map((kind) => packed(brush.colours.fill(kind, 0, 1).rgb));
  const idle = packed(parseColour(brush.colours.idle));
  for (let column = 0; column < columns; column++) {
    let filled = 0;
    let row = height;
    for (const kind of [F, B, W]) {
      filled += shares[kind][Math.floor(column / wide)];
      const top = Math.max(0, Math.round(height * (1 - filled)));
      while (row > top) pixels[--row * columns + column] = inks[kind];
    }
    while (row > 0) pixels[--row * columns + column] = idle;
  }
  brush.context.putImageData(image, brush.left, y);
}

function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function paintIdle(brush, schedule, device, y, height) {
  const { context, ratio, colours } = brush;
  for (const [start, end, cause] of schedule.idle[device] || []) {
    const x = Math.max(brush.at(start), brush.left);
    const to = Math.min(brush.at(end), brush.right);
    if (to - x < ratio) continue;
    context.fillStyle = colours.pattern(context, schedule.causes[cause], ratio);
    context.fillRect(x, y, to - x - (to - x > 3 * ratio ? ratio : 0), height);
  }
}

// Activations travel in the upper half of the lane, gradients in the lower; none when hops are free.
function paintTransfers(brush, schedule, device, y, height) {
  const { ops } = schedule;
  const [first, last] = visibleOps(ops, device, brush);
  if (last - first > DENSE * (brush.right - brush.left)) return;
  const tall = Math.floor((height - brush.ratio) / 2);
  for (let op = Math.max(first - 8, ops.first[device]); op < last; op++) {
    for (const { op: to, node, arrival } of schedule.outputs(op)) {
      if (ops.device[to] === device) continue;
      const kind = node[0] === F ? F : B;
      const x = Math.max(brush.at(ops.end[op]), brush.left);
      const end = Math.min(brush.at(arrival), brush.right);
      if (end <= x) continue;
      brush.context.fillStyle = brush.colours.fill(kind, 0, 1).fill;
      brush.context.fillRect(x, y + (kind === B ? height - tall : 0), end - x, tall);
    }
  }
}

// What a device holds, as a filled step curve under its limit; what exceeds it is marked.
function paintMemory(brush, schedule, device, y, height) {
  const { context, ratio, colours } = brush;
  const { ops, memory, problem } = schedule;
  const [first, last] = visibleOps(ops, device, brush);
  const columns = brush.right - brush.left;
  const held = new Float64Array(columns + 1);
  const raise = (from, to, value) => {
    const end = Math.min(columns, Math.max(Math.ceil(brush.exact(to)), brush.at(from) + 1)
      - brush.left);
    for (let at = Math.max(0, Math.floor(brush.exact(from)) - brush.left); at < end; at++) {
      if (held[at] < value) held[at] = value;
    }
  };
  for (let op = first; op < last; op++) {
    raise(ops.start[op], ops.end[op], memory.during[op]);
    const next = op + 1 < ops.first[device + 1] ? ops.start[op + 1] : schedule.last;
    if (next > ops.end[op]) raise(ops.end[op], next, memory.after[op]);
  }
  const unit = (height - ratio) / memoryTop(schedule);
  const limit = problem.limits[device];
  for (let from = 0, at = 1; at <= columns; at++) {
    if (at < columns && held[at] === held[from]) continue;
    const tall = Math.round(held[from] * unit);
    context.fillStyle = colours.held;
    context.fillRect(brush.left + from, y + height - tall, at - from, tall);
    if (limit !== null && held[from] > limit) {
      context.fillStyle = colours.alarm;
      const over = tall - Math.round(limit * unit);
      context.fillRect(brush.left + from, y + height - tall, at - from, over);
    }
    from = at;
  }
  context.fillStyle = colours.line;
  context.fillRect(brush.left, y + height - ratio, columns, ratio);
  if (limit === null) return;
  context.fillStyle = colours.soft;
  const top = y + height - Math.round(limit * unit) - ratio;
  const end = Math.min(brush.at(schedule.last), brush.right);
  for (let x = Math.max(brush.left, brush.at(schedule.origin)); x < end; x += 5 * ratio) {
    context.fillRect(x, top, Math.min(3 * ratio, end - x), ratio);
  }
}
