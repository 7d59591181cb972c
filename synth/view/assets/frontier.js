// Bubble against memory: handcrafted schedules at the settings, and the solved ones of the library.

const SVG = "http://www.w3.org/2000/svg";
const CHART = { width: 282, height: 236, left: 34, right: 8, top: 10, bottom: 34 };

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Points are {x, y, label, solved, shown, title, click}.
function drawFrontier(svg, points, limit) {
  svg.setAttribute("viewBox", `0 0 ${CHART.width} ${CHART.height}`);
  svg.replaceChildren();
  if (!points.length) return;
  const x = axisScale(points.map((point) => point.x), CHART.left, CHART.width - CHART.right);
  const y = axisScale(points.map((point) => 100 * point.y), CHART.height - CHART.bottom, CHART.top);
  drawAxes(svg, x, y);
  if (limit > 0 && limit <= x.top) {
    svg.append(shape("line", { x1: x.at(limit), x2: x.at(limit), y1: CHART.top,
      y2: CHART.height - CHART.bottom, class: "limit" }));
  }
  const solved = points.filter((point) => point.solved).sort((a, b) => a.x - b.x);
  drawStairs(svg, solved, x, y);
  const places = points.map((point) => ({ point, x: x.at(point.x), y: y.at(100 * point.y) }));
  const taken = places.map((place) => ({ x: place.x - 5, y: place.y - 5, width: 10, height: 10 }));
  for (const { point, ...place } of places) drawPoint(svg, point, place, taken);
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
  svg.append(shape("text", { x: CHART.width - CHART.right, y: floor + 29, "text-anchor": "end" },
    "bubble against peak memory, activation units"));
}

// The least bubble within each amount of memory, among the solved schedules.
function drawStairs(svg, solved, x, y) {
  if (!solved.length) return;
  let best = Infinity;
  let path = "";
  for (const point of solved) {
    if (point.y >= best) continue;
    path += path ? `H${x.at(point.x)}V${y.at(100 * point.y)}`
      : `M${x.at(point.x)} ${y.at(100 * point.y)}`;
    best = point.y;
  }
  svg.append(shape("path", { d: `${path}H${x.at(x.top)}`, class: "stairs" }));
}

// A point, with its label where it covers nothing: beside it, else above or below.
function drawPoint(svg, point, { x, y }, taken) {
  const group = shape("g", { class: [point.solved ? "solved" : "crafted",
    point.shown ? "shown" : "", point.click ? "link" : ""].join(" ") });
  group.append(shape("title", {}, point.title), point.solved
    ? shape("rect", { x: x - 4, y: y - 4, width: 8, height: 8, transform: `rotate(45 ${x} ${y})` })
    : shape("circle", { cx: x, cy: y, r: 4 }));
  const [width, height] = [5.6 * point.label.length + 2, 11];
  const spots = [0, -12, 12, -24, 24, -36, 36].flatMap((shift) =>
    [x + 8, x - 8 - width].map((left) => ({ x: left, y: y - 6 + shift, width, height })));
  const inside = spots.filter((box) => box.x > CHART.left && box.x + width < CHART.width
    && box.y > 0 && box.y + height < CHART.height - CHART.bottom);
  const box = inside.find((spot) => !taken.some((other) => overlap(spot, other))) || inside[0];
  if (box) {
    taken.push(box);
    group.append(shape("text", { x: box.x + (box.x < x ? width : 0), y: box.y + 9.5,
      "text-anchor": box.x < x ? "end" : "start" }, point.label));
  }
  if (point.click) group.addEventListener("click", point.click);
  svg.append(group);
}

function overlap(a, b) {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}
