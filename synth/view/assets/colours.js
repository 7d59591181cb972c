// Colours come from the style sheet, so that light, dark and print differ there alone.

const KIND_NAMES = {
  [F]: "forward", [B]: "input gradient", [W]: "weight gradient",
  [BW]: "full backward", [FB]: "overlapped pair",
};

class Colours {
  constructor(element) {
    const style = getComputedStyle(element);
    const get = (name) => style.getPropertyValue(name).trim();
    this.paper = get("--paper");
    this.ink = get("--ink");
    this.soft = get("--soft");
    this.faint = get("--faint");
    this.line = get("--line");
    this.idle = get("--idle");
    this.hatch = get("--hatch");
    this.alarm = get("--alarm");
    this.accent = get("--accent");
    this.held = get("--held");
    this.base = { [F]: get("--f"), [B]: get("--b"), [W]: get("--w") };
    this.font = get("--font");
    this.cache = new Map();
    this.patterns = new Map();
  }

  // The fill of an F, B or W of a chunk: later chunks are paler.
  fill(kind, chunk, chunks) {
    const key = kind * 64 + Math.min(chunk, 7) * 8 + Math.min(chunks, 7);
    if (!this.cache.has(key)) {
      const share = chunks > 1 ? (0.52 * chunk) / Math.max(1, chunks - 1) : 0;
      const rgb = mix(parseColour(this.base[kind]), parseColour(this.paper), share);
      this.cache.set(key, { rgb, fill: `rgb(${rgb.join(" ")})`, text: textOn(rgb) });
    }
    return this.cache.get(key);
  }

  // Idle time is shaded by cause: each has a texture of its own, none a colour of the ops.
  pattern(context, cause, ratio) {
    const key = `${cause} ${ratio}`;
    if (!this.patterns.has(key)) {
      this.patterns.set(key, context.createPattern(texture(cause, this, ratio), "repeat"));
    }
    return this.patterns.get(key);
  }
}

function parseColour(text) {
  const digits = text.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

function mix(from, to, share) {
  return from.map((value, at) => Math.round(value + (to[at] - value) * share));
}

// Black or white, whichever reads better.
function textOn(rgb) {
  const [r, g, b] = rgb.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.26 ? "#101418" : "#ffffff";
}

function texture(cause, colours, ratio) {
  const size = 6 * ratio;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const context = tile.getContext("2d");
  context.fillStyle = colours.idle;
  context.fillRect(0, 0, size, size);
  context.strokeStyle = context.fillStyle = cause === "memory" ? colours.alarm : colours.hatch;
  context.lineWidth = ratio;
  const stroke = (...points) => {
    context.beginPath();
    for (let at = 0; at < points.length; at += 4) {
      context.moveTo(points[at] * size, points[at + 1] * size);
      context.lineTo(points[at + 2] * size, points[at + 3] * size);
    }
    context.stroke();
  };
  if (cause === "input" || cause === "memory") {
    stroke(-0.5, 0.5, 0.5, -0.5, 0, 1, 1, 0, 0.5, 1.5, 1.5, 0.5);
  } else if (cause === "order") {
    stroke(-0.5, 0.5, 0.5, 1.5, 0, 0, 1, 1, 0.5, -0.5, 1.5, 0.5);
  } else if (cause === "transfer") {
    stroke(0.5, 0, 0.5, 1);
  } else {
    context.fillRect(size / 2, size / 2, ratio, ratio);
  }
  return tile;
}
