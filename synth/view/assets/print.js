// On paper every schedule is a picture of its own, in the light colours, all of its rows in full.

const PAPER_WIDTH = 1150;
const PAPER_PIXELS = 14000; // of the longer side, within what canvases can hold

function bindPrint(timeline, recoloured) {
  const pictures = Object.assign(document.createElement("div"), { id: "pictures" });
  timeline.host.after(pictures);
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    const screen = timeline.colours;
    timeline.colours = new Colours(timeline.host);
    pictures.replaceChildren(...timeline.panels.map((panel) => picture(timeline, panel)));
    recoloured(timeline.colours);
    timeline.colours = screen;
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    pictures.replaceChildren();
    recoloured(timeline.colours);
  });
}

function picture(timeline, panel) {
  const height = panel.bottom - panel.top + AXIS;
  const ratio = Math.max(1, Math.min(3, Math.floor(PAPER_PIXELS / Math.max(height, PAPER_WIDTH))));
  const canvas = Object.assign(document.createElement("canvas"),
    { width: PAPER_WIDTH * ratio, height: Math.round(height * ratio) });
  const sheet = Object.create(timeline, Object.getOwnPropertyDescriptors({
    host: { scrollTop: panel.top - AXIS, clientHeight: height, clientWidth: PAPER_WIDTH },
    plot: PAPER_WIDTH - GUTTER - MARGIN,
    panels: [panel],
    base: canvas,
    ratio,
  }));
  paintTimeline(sheet, canvas.getContext("2d", { alpha: false }));
  return canvas;
}
