// What cells and textures mean, and the buttons and keys of a page.

function fillLegend(element, schedules, colours) {
  const kinds = new Set();
  const causes = new Set();
  let chunks = 1;
  let streams = [];
  for (const { ops, problem, idle, causes: names, chunks: of } of schedules) {
    for (const kind of ops.kind) kinds.add(kind);
    for (const row of idle) for (const [, , cause] of row) causes.add(names[cause]);
    chunks = Math.max(chunks, ...of.map((route) => Math.max(...route) + 1));
    if (problem.streams.length > streams.length) streams = problem.streams;
  }
  const items = [...kinds].sort().map((kind) =>
    [swatch(colours, { kind }), `${kind === FB ? "F+B" : KINDS[kind]} ${KIND_NAMES[kind]}`]);
  if (chunks > 1) items.push([swatch(colours, { chunks }), `chunk 0–${chunks - 1}`]);
  streams.slice(1).forEach((stream, at) =>
    items.push([swatch(colours, { kind: F, stream: at + 1 }), `stream ${stream.name}`]));
  if (schedules.some(({ problem }) => hasLatency(problem))) {
    items.push([swatch(colours, { transfer: true }), "activations and gradients on their way"]);
  }
  for (const cause of ["fill", "input", "transfer", "memory", "order", "drain"]) {
    if (causes.has(cause)) items.push([swatch(colours, { cause }), CAUSE_NAMES[cause]]);
  }
  element.replaceChildren(...items.map(([picture, text]) => {
    const item = document.createElement("li");
    item.append(picture, text);
    return item;
  }));
}

const CAUSE_NAMES = {
  fill: "fill", input: "waits for input", transfer: "waits for a transfer",
  memory: "no room in memory", order: "order", drain: "drain",
};

function swatch(colours, { kind, chunks, stream = 0, transfer, cause }) {
  const ratio = 2;
  const canvas = Object.assign(document.createElement("canvas"), { width: 22 * ratio, height: 12 * ratio });
  const context = canvas.getContext("2d");
  const fill = (colour, x, y, width, height) => {
    context.fillStyle = colour;
    context.fillRect(x * ratio, y * ratio, width * ratio, height * ratio);
  };
  if (cause) fill(colours.pattern(context, cause, ratio), 0, 0, 22, 12);
  else if (transfer) {
    fill(colours.fill(F, 0, 1).fill, 0, 2, 22, 3);
    fill(colours.fill(B, 0, 1).fill, 0, 7, 22, 3);
  } else if (chunks) {
    for (let chunk = 0; chunk < chunks; chunk++) {
      fill(colours.fill(F, chunk, chunks).fill, (chunk * 22) / chunks, 0, 22 / chunks, 12);
    }
  } else {
    fill(colours.fill(kind === BW ? B : kind === FB ? F : kind, 0, 1).fill, 0, 0, 22, 12);
    if (kind === BW) fill(colours.fill(W, 0, 1).fill, 0, 9, 22, 3);
    if (kind === FB) fill(colours.fill(B, 0, 1).fill, 0, 6, 22, 6);
    if (stream) fill(colours.paper, 1, 2, 20, 1.5);
  }
  return canvas;
}

// `recoloured` draws what else has colours. Buttons with data-option switch what is drawn, and keys press them; the theme follows the system
// until it is chosen.
function bindPage(timeline, recoloured) {
  const actions = {};
  for (const button of document.querySelectorAll("button[data-option]")) {
    const name = button.dataset.option;
    button.onclick = () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", on);
      timeline.setOption(name, on);
      return true;
    };
    button.setAttribute("aria-pressed", timeline.options[name]);
    actions[button.dataset.key] = () => button.onclick();
  }
  const recolour = () => {
    timeline.recolour();
    recoloured(timeline.colours);
  };
  const theme = document.getElementById("theme");
  theme.onclick = () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    recolour();
    return true;
  };
  actions.t = () => theme.onclick();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  const find = document.getElementById("find");
  actions["/"] = () => {
    find.focus();
    return true;
  };
  find.onchange = () => {
    find.classList.toggle("alarm", !goTo(timeline, find.value));
    if (!find.classList.contains("alarm")) find.blur();
  };
  document.getElementById("fit").onclick = () => timeline.fit();
  fillKeys(document.getElementById("keys"));
  bindKeys(timeline, actions);
  bindPrint(timeline, recoloured);
}

function fillKeys(list) {
  for (const [key, does] of KEYS) {
    list.append(Object.assign(document.createElement("dt"), { textContent: key }),
      Object.assign(document.createElement("dd"), { textContent: does }));
  }
}
