// A canvas of schedules on one time axis, with zoom, pan, hover and selection.

const GUTTER = 40;
const MARGIN = 116;
const AXIS = 24;
const TITLE = 26;
const ROW = { cell: 22, lane: 8, measured: 11, memory: 18, space: 5 };

class Timeline {
  constructor(host, { wheelZooms = false, onHover = () => {} } = {}) {
    this.host = host;
    this.wheelZooms = wheelZooms;
    this.onHover = onHover;
    this.options = { idle: true, memory: true, measured: true, transfers: true, follow: false };
    this.panels = [];
    this.hover = null;
    this.selected = null;
    this.pointer = null;
    host.innerHTML = '<div class="stick"><canvas></canvas><canvas></canvas></div>'
      + '<div class="sizer"></div>';
    [this.base, this.over] = host.querySelectorAll("canvas");
    this.sizer = host.querySelector(".sizer");
    this.listen();
    new ResizeObserver(() => this.refresh()).observe(host);
    this.recolour();
  }

  recolour() {
    this.colours = new Colours(this.host);
    this.refresh();
  }

  show(schedules, keepView = false) {
    this.schedules = schedules;
    this.hover = this.selected = null;
    this.total = Math.max(...schedules.map((schedule) => this.extent(schedule)));
    if (!keepView || !this.span) this.fit();
    else this.moveTo(this.t0, this.span);
    this.refresh();
    this.onHover(null);
  }

  extent(schedule) {
    const { measured, origin, last, problem } = schedule;
    const ends = measured && this.options.measured ? measured.ops.end : [];
    let most = last - origin;
    for (const end of ends) most = Math.max(most, end);
    return most / problem.ticksPerUnit;
  }

  fit() {
    this.moveTo(0, this.total * 1.004);
  }

  // Show `span` units from t0 on, within what there is.
  moveTo(t0, span) {
    const most = this.total * 1.004;
    this.span = Math.min(Math.max(span, most / 1e6), most * 1.25);
    const slack = this.span * 0.1;
    this.t0 = Math.min(Math.max(t0, -slack), Math.max(most - this.span + slack, -slack));
    this.request();
  }

  // Scale time by a factor around a point of the plot, in CSS pixels.
  zoom(factor, x = GUTTER + this.plot / 2) {
    const share = (x - GUTTER) / this.plot;
    const time = this.t0 + share * this.span;
    const span = this.span * factor;
    this.moveTo(time - share * Math.min(span, this.total * 1.255), span);
  }

  pan(pixels) {
    this.moveTo(this.t0 + (pixels / this.plot) * this.span, this.span);
  }

  setOption(name, on) {
    this.options[name] = on;
    if (name === "measured") this.total = Math.max(...this.schedules.map((s) => this.extent(s)));
    this.refresh();
  }

  // Rows of every panel, in CSS pixels from the top of the content.
  layout() {
    let y = AXIS;
    this.panels = (this.schedules || []).map((schedule) => {
      const panel = { schedule, top: y, rows: [] };
      const parts = {
        cell: ROW.cell,
        lane: this.options.transfers && hasLatency(schedule.problem) ? ROW.lane : 0,
        measured: this.options.measured && schedule.measured ? ROW.measured : 0,
        memory: this.options.memory ? ROW.memory : 0,
      };
      y += TITLE;
      for (let device = 0; device < schedule.problem.devices; device++) {
        const row = { device, top: y };
        for (const [name, height] of Object.entries(parts)) {
          row[name] = { top: y, height: name === "lane" && height ? height - 1 : height };
          y += height ? height + 2 : 0;
        }
        y += ROW.space;
        row.bottom = y;
        panel.rows.push(row);
      }
      y += 10;
      panel.bottom = y;
      return panel;
    });
    this.height = y;
  }

  refresh() {
    this.layout();
    this.sizer.style.height = `${this.height}px`;
    this.plot = Math.max(50, this.host.clientWidth - GUTTER - MARGIN);
    this.request();
  }

  request() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw(ratio = window.devicePixelRatio || 1) {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.schedules) return;
    this.ratio = ratio;
    for (const canvas of [this.base, this.over]) {
      const width = Math.round(this.host.clientWidth * ratio);
      const height = Math.round(this.host.clientHeight * ratio);
      if (canvas.width !== width || canvas.height !== height) {
        Object.assign(canvas, { width, height });
        canvas.style.width = `${width / ratio}px`;
        canvas.style.height = `${height / ratio}px`;
      }
    }
    paintTimeline(this, this.base.getContext("2d", { alpha: false }));
    this.drawOver();
  }

  drawOver() {
    const context = this.over.getContext("2d");
    context.clearRect(0, 0, this.over.width, this.over.height);
    paintOver(this, context);
  }

  // Where on a canvas a panel's ticks are. Device pixels.
  brush(context, schedule, origin = schedule.origin) {
    const { ratio, colours } = this;
    const scale = (this.plot / this.span / schedule.problem.ticksPerUnit) * ratio;
    const zero = (GUTTER - (this.t0 * this.plot) / this.span) * ratio - origin * scale;
    return {
      context, ratio, colours,
      left: Math.round(GUTTER * ratio),
      right: Math.round((GUTTER + this.plot) * ratio),
      exact: (tick) => zero + tick * scale,
      at: (tick) => Math.round(zero + tick * scale),
      tick: (pixel) => (pixel - zero) / scale,
    };
  }

  timeAt(x) {
    return this.t0 + ((x - GUTTER) / this.plot) * this.span;
  }

  // What lies under a point of the host, in CSS pixels: {schedule, row, part, op, tick}.
  hit(x, y) {
    if (y < AXIS || x < GUTTER || x > GUTTER + this.plot) return null;
    const content = y + this.host.scrollTop;
    const panel = this.panels.find(({ top, bottom }) => content >= top && content < bottom);
    const row = panel?.rows.find(({ top, bottom }) => content >= top && content < bottom);
    if (!row) return null;
    const part = ["cell", "lane", "measured", "memory"].find((name) =>
      row[name].height && content < row[name].top + row[name].height + 1);
    return part ? this.hitPart(panel, row, part, x) : null;
  }

  hitPart({ schedule }, row, part, x) {
    const units = this.timeAt(x) * schedule.problem.ticksPerUnit;
    const measured = part === "measured";
    const ops = measured ? schedule.measured.ops : schedule.ops;
    const tick = measured ? units : units + schedule.origin;
    const found = { schedule, device: row.device, part, tick, op: -1 };
    if (ops.first[row.device] === ops.first[row.device + 1]) return found;
    const op = opAtOrBefore(ops, row.device, tick);
    const near = (this.span / this.plot) * schedule.problem.ticksPerUnit;
    if (tick >= ops.start[op] && tick < Math.max(ops.end[op], ops.start[op] + near)) found.op = op;
    return found;
  }

  // Select an op and bring it into view.
  select(schedule, op) {
    this.selected = op < 0 ? null : {
      schedule, op, part: "cell", device: schedule.ops.device[op], tick: schedule.ops.start[op],
    };
    if (this.selected) this.reveal(schedule, op);
    this.request();
    this.onHover(this.selected);
  }

  reveal(schedule, op) {
    const unit = schedule.problem.ticksPerUnit;
    const start = (schedule.ops.start[op] - schedule.origin) / unit;
    const end = (schedule.ops.end[op] - schedule.origin) / unit;
    if (start < this.t0 || end > this.t0 + this.span) {
      this.moveTo((start + end - this.span) / 2, this.span);
    }
    const panel = this.panels.find((other) => other.schedule === schedule);
    const row = panel.rows[schedule.ops.device[op]];
    const { scrollTop, clientHeight } = this.host;
    if (row.top < scrollTop + AXIS || row.bottom > scrollTop + clientHeight) {
      this.host.scrollTop = row.top - clientHeight / 2;
    }
  }

  // The box of an op on the screen, in CSS pixels of the host.
  box(schedule, op) {
    const panel = this.panels.find((other) => other.schedule === schedule);
    const { top, height } = panel.rows[schedule.ops.device[op]].cell;
    const brush = this.brush(null, schedule);
    const x = brush.exact(schedule.ops.start[op]) / this.ratio;
    const width = brush.exact(schedule.ops.end[op]) / this.ratio - x;
    return { x, y: top - this.host.scrollTop, width, height };
  }

  listen() {
    const { host } = this;
    host.addEventListener("scroll", () => this.request());
    host.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    host.addEventListener("pointerdown", (event) => this.press(event));
    host.addEventListener("pointermove", (event) => this.move(event));
    host.addEventListener("pointerup", (event) => this.release(event));
    host.addEventListener("pointerleave", () => this.point(null));
    host.addEventListener("dblclick", () => this.fit());
  }

  wheel(event) {
    const { x, y } = this.local(event);
    const scrolls = host => host.scrollHeight > host.clientHeight + 1;
    const zooms = event.ctrlKey || event.metaKey || y < AXIS
      || (this.wheelZooms && !scrolls(this.host) && !event.shiftKey);
    const sideways = event.shiftKey ? event.deltaY + event.deltaX : event.deltaX;
    if (zooms) this.zoom(Math.exp(event.deltaY * 0.002), x);
    else if (Math.abs(sideways) > 0) this.pan(sideways);
    else return;
    event.preventDefault();
  }

  local(event) {
    const { left, top } = this.host.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  press(event) {
    if (event.button !== 0) return;
    this.drag = { x: event.clientX, y: event.clientY, moved: false };
  }

  move(event) {
    if (!this.drag || !(event.buttons & 1)) {
      this.drag = null;
      this.point(this.local(event));
      return;
    }
    const [dx, dy] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (!this.drag.moved && Math.hypot(dx, dy) < 4) return;
    if (!this.drag.moved) this.host.setPointerCapture(event.pointerId);
    this.host.classList.add("dragging");
    this.point(null);
    this.pan(-dx);
    this.host.scrollTop -= dy;
    this.drag = { x: event.clientX, y: event.clientY, moved: true };
  }

  release(event) {
    this.host.classList.remove("dragging");
    if (this.drag && !this.drag.moved) {
      const { x, y } = this.local(event);
      const found = this.hit(x, y);
      this.selected = found && found.op >= 0 && found.part === "cell" ? found : null;
      this.onHover(this.selected || found);
      this.drawOver();
    }
    this.drag = null;
  }

  point(position) {
    this.pointer = position;
    this.hover = position && this.hit(position.x, position.y);
    this.onHover(this.hover || this.selected);
    this.drawOver();
  }
}
