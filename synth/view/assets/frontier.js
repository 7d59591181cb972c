// Bubble against memory: a chart whose points the pointer and the keyboard reach.

const SVG = "http://www.w3.org/2000/svg";
const CHART = { width: 296, height: 244, left: 34, right: 8, top: 10, bottom: 20 };

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Points are {id, x, y, mark, series, label, shown, faint, rows, press}: mark is "proved", "open" or
// "crafted"; those of a series are joined by stairs; rows are what the card says.
class Chart {
  constructor(svg, card) {
    this.svg = svg;
    this.card = card;
    this.current = null; // the id of the point that Tab reaches
    svg.setAttribute("viewBox", `0 0 ${CHART.width} ${CHART.height}`);
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  draw(points, limit = 0) {
    const focused = this.svg.contains(document.activeElement);
    this.svg.replaceChildren();
    this.points = points.toSorted((a, b) => a.x - b.x || b.y - a.y);
    if (!points.length) return;
    const x = axisScale(points.map((point) => point.x), CHART.left, CHART.width - CHART.right);
    const y = axisScale(points.map((point) => 100 * point.y), CHART.height - CHART.bottom, CHART.top);
    drawAxes(this.svg, x, y);
    if (limit > 0 && limit <= x.top) {
      this.svg.append(shape("line", { x1: x.at(limit), x2: x.at(limit), y1: CHART.top,
        y2: CHART.height - CHART.bottom, class: "limit" }));
    }
    const series = Map.groupBy(this.points.filter((point) => point.series), ({ series }) => series);
    for (const members of series.values()) drawStairs(this.svg, members, x, y);
    const places = this.points.map((point) => ({ point, x: x.at(point.x), y: y.at(100 * point.y) }));
    this.groups = places.map((place) => this.place(place));
    drawLabels(this.groups, places);
    if (!this.points.some(({ id }) => id === this.current)) this.current = this.points[0].id;
    this.reach(this.current, focused);
  }

  place({ point, x, y }) {
    const group = shape("g", { "data-id": point.id, role: "button", tabindex: -1,
      "aria-label": point.rows.map(([label, text]) => `${label} ${text}`.trim()).join(", "),
      "aria-pressed": point.shown,
      class: [point.mark, point.shown ? "shown" : "", point.faint ? "faint" : ""].join(" ") });
    if (point.shown) group.append(shape("circle", { cx: x, cy: y, r: 7.5, class: "ring" }));
    group.append(point.mark === "crafted" ? shape("circle", { cx: x, cy: y, r: 4, class: "mark" })
      : shape("path", { d: `M${x} ${y - 5.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5z`, class: "mark" }));
    const tell = () => this.card.tell(point.rows, group.querySelector(".mark").getBoundingClientRect());
    group.addEventListener("pointerenter", tell);
    group.addEventListener("focus", tell);
    for (const event of ["pointerleave", "blur"]) group.addEventListener(event, () => this.card.hide());
    group.addEventListener("click", () => {
      this.current = point.id;
      point.press();
    });
    this.svg.append(group);
    return group;
  }

  // One point is a stop for Tab; arrows go on from it.
  reach(id, focus) {
    this.current = id;
    for (const group of this.groups) group.setAttribute("tabindex", group.dataset.id === id ? 0 : -1);
    if (focus) this.groups.find((group) => group.dataset.id === id).focus({ preventScroll: true });
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    const at = this.points.findIndex(({ id }) => id === this.current);
    if (step) {
      this.reach(this.points[(at + step + this.points.length) % this.points.length].id, true);
    } else if (event.key === "Enter" || event.key === " ") {
      this.points[at].press();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

// From 0 to a round number above the largest value, in at most six steps.
function axisScale(values, from, to) {
  const most = Math.max(...values, 1e-9) * 1.06;
  const power = 10 ** Math.floor(Math.log10(most / 5));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => most / size <= 6);
  const top = Math.ceil(most / step) * step;
  return { step, top, at: (value) => from + (value / top) * (to - from) };
}

function drawAxes(svg, x, y) {
  const floor = CHART.height - CHART.bottom;
  for (let value = 0; value <= y.top + 1e-9; value += y.step) {
    svg.append(shape("line", { x1: CHART.left, x2: CHART.width - CHART.right, y1: y.at(value),
      y2: y.at(value), class: value ? "grid" : "axis" }),
    shape("text", { x: CHART.left - 6, y: y.at(value) + 4, "text-anchor": "end" },
      `${number(value, 2)}%`));
  }
  for (let value = 0; value <= x.top + 1e-9; value += x.step) {
    svg.append(shape("text", { x: x.at(value), y: floor + 15, "text-anchor": "middle" },
      number(value, 2)));
  }
}

// The least bubble within each amount of memory.
function drawStairs(svg, members, x, y) {
  let best = Infinity;
  let path = "";
  for (const point of members) {
    if (point.y >= best) continue;
    path += path ? `H${x.at(point.x)}V${y.at(100 * point.y)}`
      : `M${x.at(point.x)} ${y.at(100 * point.y)}`;
    best = point.y;
  }
  const end = x.at(members.at(-1).x);
  const faint = members.every((point) => point.faint) ? " faint" : "";
  svg.append(shape("path", { d: `${path}H${end}`, class: `stairs${faint}` }));
}

// Labels go where they cover nothing: beside their point, else above or below. Where all is taken
// the card has to do.
function drawLabels(groups, places) {
  const taken = places.map(({ x, y }) => ({ x: x - 5, y: y - 5, width: 10, height: 10 }));
  places.forEach(({ point: { label, shown }, x, y }, at) => {
    if (!label) return;
    const [width, height, side] = [5.7 * label.length + 3, 11, shown ? 11 : 8];
    const box = [0, -10, 10, -19, 19, -28, 28].flatMap((shift) =>
      [x + side, x - side - width].map((left) => ({ x: left, y: y - 6 + shift, width, height })))
      .find((spot) => spot.x > CHART.left && spot.x + width < CHART.width && spot.y > 0
        && spot.y + height < CHART.height - CHART.bottom
        && !taken.some((other) => overlap(spot, other)));
    if (!box) return;
    taken.push(box);
    groups[at].append(shape("text", { x: box.x + (box.x < x ? width : 0), y: box.y + 9.5,
      "text-anchor": box.x < x ? "end" : "start" }, label));
  });
}

function overlap(a, b) {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}
