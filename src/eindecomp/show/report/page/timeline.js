// The timeline of a run: a row for each device, or several where it did several things at once.

const AXIS = 24;
const SIDE = 74; // for the names of devices

class Timeline {
  constructor(parent, open) {
    const { kinds, rows, left_out: leftOut } = DATA.run.timeline;
    this.data = DATA.run.timeline;
    this.open = open;
    this.rowHeight = Math.max(6, Math.min(26, Math.floor(420 / rows.length)));
    this.whole = this.data.start.reduce(
      (end, start, k) => Math.max(end, start + this.data.length[k]),
      1,
    );
    this.focused = -1;
    this.byRow = rows.map(() => []);
    this.data.row.forEach((row, k) => this.byRow[row].push(k));
    this.element = make(
      "div",
      {
        class: "view",
        tabindex: "0",
        role: "group",
        "aria-label": "Timeline by device",
        "aria-describedby": "timeline-keys",
      },
      make("canvas", { "aria-hidden": "true" }),
    );
    this.element.style.height = `${rows.length * this.rowHeight + AXIS}px`;
    this.told = make(
      "div",
      { class: "told", role: "status" },
      "Point at a task, or focus the timeline and use the arrow keys.",
    );
    const buttons = [
      ["−", "Zoom out in time", () => this.view.zoom(1 / 1.6)],
      ["+", "Zoom in in time", () => this.view.zoom(1.6)],
      ["Fit", "Show all of the run", () => this.view.fit()],
    ];
    parent.append(
      make(
        "div",
        { class: "timeline" },
        make(
          "div",
          { class: "toolbar" },
          make(
            "div",
            { class: "legend" },
            kinds.map((kind, k) =>
              make("span", {}, make("i", { style: { background: `var(--kind-${k % 5})` } }), kind),
            ),
            leftOut > 0 && `${leftOut.toLocaleString("en")} shorter tasks are left out`,
          ),
          make(
            "div",
            { class: "buttons" },
            buttons.map(([words, label, act]) =>
              make("button", { type: "button", "aria-label": label, on: { click: act } }, words),
            ),
          ),
        ),
        this.element,
        this.told,
        make(
          "p",
          { class: "hint keys", id: "timeline-keys" },
          "Keys: ",
          make("kbd", {}, "←"),
          " ",
          make("kbd", {}, "→"),
          " task, ",
          make("kbd", {}, "↑"),
          " ",
          make("kbd", {}, "↓"),
          " device, ",
          make("kbd", {}, "+"),
          " ",
          make("kbd", {}, "−"),
          " zoom, ",
          make("kbd", {}, "0"),
          " fit, ",
          make("kbd", {}, "Enter"),
          " opens the vertex.",
        ),
      ),
    );
    this.view = new View(this.element, {
      draw: (context, view) => this.draw(context, view),
      extent: () => [0, 0, this.whole, 1],
      flat: true,
      most: 50,
      left: SIDE,
    });
    this.element.addEventListener("keydown", (event) => this.key(event), true);
    this.element.addEventListener("pointermove", (event) => this.point(event));
    this.element.addEventListener("click", (event) => {
      this.point(event);
      if (this.focused >= 0) this.open(this.data.vertex[this.focused]);
    });
  }

  point(event) {
    const box = this.element.getBoundingClientRect();
    const [time] = this.view.toWorld(event.clientX - box.x, 0);
    const row = Math.floor((event.clientY - box.y - AXIS) / this.rowHeight);
    const slack = 2 / this.view.k;
    this.tell(
      (this.byRow[row] ?? []).find(
        (k) =>
          time >= this.data.start[k] - slack &&
          time <= this.data.start[k] + this.data.length[k] + slack,
      ) ?? -1,
    );
  }

  tell(task) {
    if (task === this.focused) return;
    this.focused = task;
    if (task >= 0) {
      const { vertex, kind, kinds, row, rows, start, length } = this.data;
      const seconds = (ns) => short(ns / 1e9, "seconds");
      const [from, to] = [start[task], start[task] + length[task]];
      const what = `${nameOf(vertex[task])}, ${kinds[kind[task]]} on device ${rows[row[task]]}`;
      const when = `${seconds(length[task])}, from ${seconds(from)} to ${seconds(to)}`;
      this.told.textContent = `${what}: ${when}`;
    }
    this.view.redraw();
  }

  key(event) {
    const { row, start, length } = this.data;
    const step = (by) => {
      if (this.focused < 0) return this.byRow[0][0];
      const own = this.byRow[row[this.focused]];
      return own[Math.max(0, Math.min(own.length - 1, own.indexOf(this.focused) + by))];
    };
    const across = (by) => {
      if (this.focused < 0) return this.byRow[0][0];
      const own = this.byRow[Math.max(0, Math.min(this.byRow.length - 1, row[this.focused] + by))];
      const middle = start[this.focused] + length[this.focused] / 2;
      return own.reduce(
        (best, k) =>
          Math.abs(start[k] + length[k] / 2 - middle) <
          Math.abs(start[best] + length[best] / 2 - middle)
            ? k
            : best,
        own[0],
      );
    };
    const acts = {
      ArrowRight: () => step(1),
      ArrowLeft: () => step(-1),
      ArrowDown: () => across(1),
      ArrowUp: () => across(-1),
    };
    if (event.key === "Enter" && this.focused >= 0) this.open(this.data.vertex[this.focused]);
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    this.tell(acts[event.key]());
    const [from, to] = [
      start[this.focused] * this.view.k + this.view.x,
      (start[this.focused] + length[this.focused]) * this.view.k + this.view.x,
    ];
    if (from < SIDE) this.view.pan(SIDE + 20 - from, 0);
    else if (to > this.view.width) this.view.pan(this.view.width - 20 - Math.max(to, from), 0);
  }

  draw(context, view) {
    const { vertex, kind, row, rows, start, length } = this.data;
    const height = this.rowHeight;
    rows.forEach((device, k) => {
      if (device % 2) return;
      context.fillStyle = COLOURS.raised;
      context.fillRect(0, AXIS + k * height, view.width, height);
    });
    context.save();
    context.beginPath();
    context.rect(SIDE, 0, view.width - SIDE, view.height);
    context.clip();
    this.drawAxis(context, view);
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.font = `11px ${MONO}`;
    for (let k = 0; k < start.length; k += 1) {
      const x = start[k] * view.k + view.x;
      const width = Math.max(length[k] * view.k, 1);
      if (x > view.width || x + width < SIDE) continue;
      const y = AXIS + row[k] * height + 1;
      context.fillStyle = COLOURS[`kind-${kind[k] % 5}`];
      context.fillRect(x, y, Math.max(width - 0.5, 0.7), height - 2);
      const name = nameOf(vertex[k]);
      if (height >= 13 && width > name.length * 6.7 + 8) {
        context.fillStyle = COLOURS.back;
        context.fillText(name, Math.max(x, SIDE) + 4, y + height / 2 - 0.5);
      }
    }
    if (this.focused >= 0) {
      context.strokeStyle = COLOURS.ink;
      context.lineWidth = 2;
      context.strokeRect(
        start[this.focused] * view.k + view.x - 1,
        AXIS + row[this.focused] * height,
        Math.max(length[this.focused] * view.k, 2) + 2,
        height,
      );
    }
    context.restore();
    context.fillStyle = COLOURS.quiet;
    context.font = `12px ${SANS}`;
    context.textBaseline = "middle";
    let lastAt = -Infinity;
    rows.forEach((device, k) => {
      const y = AXIS + (k + 0.5) * height;
      if (device === rows[k - 1] || y - lastAt < 13) return;
      context.fillText(`device ${device}`, 10, y);
      lastAt = y;
    });
  }

  drawAxis(context, view) {
    const raw = 110 / view.k;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
    context.font = `11px ${SANS}`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    const [from] = view.toWorld(SIDE, 0);
    for (
      let time = Math.ceil(from / step) * step;
      time * view.k + view.x < view.width;
      time += step
    ) {
      const x = time * view.k + view.x;
      context.fillStyle = COLOURS.line;
      context.fillRect(x, AXIS - 6, 1, view.height);
      context.fillStyle = COLOURS.quiet;
      context.fillText(short(time / 1e9, "seconds"), x + 4, AXIS / 2);
    }
  }
}
