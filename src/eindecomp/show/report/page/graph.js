// The graph: boxes in bands, repeated bands folded or unfolded, edges as thick as the bytes.

const GAP = 70; // between bands
const PAD = 26; // around the boxes of a repeated band
const HEAD = 34; // for its title
const MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";

/** The size of words in the world: from farther away they grow, so that they can still be read. */
const readable = (size, k, most) => Math.min(Math.max(size, 10 / k), most);

const clip = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const rightSide = (vertex) => (vertex.text.includes(" <- ") ? vertex.text.slice(vertex.text.indexOf(" <- ") + 4) : vertex.text);

/** What is drawn when the bands of `unfolded` show all their repetitions. */
function sceneOf(unfolded) {
  const scene = { boxes: [], frames: [], edges: [], lines: new Map(), boxOf: new Int32Array(VERTICES.length).fill(-1) };
  const place = (band, number, left, top, repetition) => {
    const first = scene.boxes.length;
    for (const [from, to, words, points] of band.lines) {
      const moved = (numbers) => numbers.map((p, k) => p + (k % 2 ? top : left));
      scene.lines.set(`${first + from} ${first + to} false`, [moved(points), words && moved(words)]);
    }
    for (const [members, x, y, width, height] of band.boxes) {
      const own = repetition === null ? members : [members[repetition]];
      for (const vertex of own) scene.boxOf[vertex] = scene.boxes.length;
      scene.boxes.push({ x: left + x, y: top + y, width, height, members: own, band: number, folded: repetition === null && band.times > 1, frame: band.times > 1 ? scene.frames.at(-1) : null });
    }
  };
  const shapes = DATA.bands.map((band, number) => shapeOf(band, unfolded.has(number)));
  let top = 0;
  DATA.bands.forEach((band, number) => {
    const { width, height, count, columns, at } = shapes[number];
    if (band.times === 1) {
      // Near the layer that comes next, which reads it, or else below the last one.
      const middle = shapes[number + 1]?.at(0) ?? shapes[number - 1]?.at(shapes[number - 1].count - 1) ?? 0;
      place(band, number, middle - band.width / 2, top, null);
      top += band.height + GAP;
      return;
    }
    for (let k = 0; k < count; k += 1) {
      const title = unfolded.has(number) ? `${k + 1} of ${band.times}` : `layer × ${band.times.toLocaleString("en")}`;
      const frame = { x: at(k) - width / 2, y: top + Math.floor(k / columns) * (height + GAP), width, height, title, band: number, open: unfolded.has(number) };
      scene.frames.push(frame);
      place(band, number, frame.x + PAD, frame.y + HEAD, frame.open ? k : null);
    }
    top += Math.ceil(count / columns) * (height + GAP);
  });
  scene.edges = edgesOf(scene);
  const rectangles = [...scene.boxes, ...scene.frames];
  const low = (key) => rectangles.reduce((least, box) => Math.min(least, box[key]), Infinity);
  const high = (key, size) => rectangles.reduce((most, box) => Math.max(most, box[key] + box[size]), -Infinity);
  scene.extent = rectangles.length
    ? [low("x"), low("y"), high("x", "width") - low("x"), high("y", "height") - low("y")] : [0, 0, 1, 1];
  return scene;
}

/** The size of a band's frame, how many there are, on lines of how many, and the middle of each. */
function shapeOf(band, open) {
  const [width, height] = band.times > 1 ? [band.width + 2 * PAD, band.height + PAD + HEAD] : [band.width, band.height];
  const count = open ? band.times : 1;
  // Repetitions stand side by side on lines about as wide as the screen; every other line runs back.
  const columns = Math.min(count, Math.max(1, Math.ceil(Math.sqrt((count * (height + GAP) * 1.7) / (width + GAP)))));
  const at = (k) => {
    const column = Math.floor(k / columns) % 2 ? columns - 1 - (k % columns) : k % columns;
    return (column - (columns - 1) / 2) * (width + GAP);
  };
  return { width, height, count, columns, at };
}

/** Edges between boxes, those of equal ends as one; `next` leads to the next repetition. */
function edgesOf(scene) {
  const found = new Map();
  const repetition = new Int32Array(VERTICES.length);
  for (const box of scene.boxes) box.members.forEach((vertex, k) => { repetition[vertex] = k; });
  VERTICES.forEach((vertex, number) => vertex.inputs.forEach(([source, moved]) => {
    const [from, to] = [scene.boxOf[source], scene.boxOf[number]];
    const [start, end] = [scene.boxes[from], scene.boxes[to]];
    const next = start.folded && start.band === end.band && repetition[source] !== repetition[number];
    const key = `${from} ${to} ${next}`;
    const edge = found.get(key);
    if (edge) edge.bytes += moved;
    else found.set(key, { key, from, to, next, bytes: moved });
  }));
  const edges = [...found.values()];
  const most = edges.reduce((top, edge) => Math.max(top, edge.bytes), 1);
  for (const edge of edges) {
    edge.thick = edge.bytes ? 1.8 + 8 * Math.sqrt(edge.bytes / most) : 1.2;
    const [start, end] = [scene.boxes[edge.from], scene.boxes[edge.to]];
    const [points, words] = scene.lines.get(edge.key) ?? [null, null];
    edge.points = points ?? straight(start, end);
    const xs = edge.points.filter((_, k) => k % 2 === 0);
    const ys = edge.points.filter((_, k) => k % 2 === 1);
    [edge.x1, edge.y1] = edge.points.slice(-2);
    edge.words = words ?? [(xs[0] + xs.at(-1)) / 2, (ys[0] + ys.at(-1)) / 2];
    // One that leads up goes around the boxes.
    edge.around = !points && edge.y1 < ys[0] + 4 ? upAt(start, end) : null;
    if (edge.around !== null) edge.words = [edge.around, edge.words[1]];
    edge.left = Math.min(...xs, edge.around ?? Infinity) - 40;
    edge.right = Math.max(...xs, edge.around ?? -Infinity) + 40;
    edge.top = Math.min(...ys) - 40;
    edge.bottom = Math.max(...ys) + 40;
  }
  return edges.sort((a, b) => a.bytes - b.bytes);
}

/** Where a line that leads up has room: beside the boxes of a folded layer, or between two layers. */
function upAt(start, end) {
  if (start.frame && start.frame === end.frame) return end.frame.x + end.frame.width - 12;
  const to = end.frame ?? end;
  return start.x < to.x ? to.x - GAP / 2 : to.x + to.width + GAP / 2;
}

/** From the bottom of one box to the top of another. */
const straight = (start, end) => [start.x + start.width / 2, start.y + start.height, end.x + end.width / 2, end.y];

class Graph {
  constructor() {
    this.unfolded = new Set();
    this.scene = sceneOf(this.unfolded);
    this.selected = -1; // a vertex
    this.most = VERTICES.reduce((top, vertex) => Math.max(top, movedFor(vertex)), 0);
    this.spots = byId("spots");
    this.buttons = new Map();
    this.onSelect = () => {};
    this.view = new View(byId("view"), {
      draw: (context, view) => this.draw(context, view),
      extent: () => this.scene.extent,
      settled: () => this.placeSpots(),
    });
    byId("view").addEventListener("click", (event) => this.click(event));
    byId("panel").addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      const box = this.scene.boxes[this.scene.boxOf[this.selected]];
      (this.buttons.get(`box ${box?.members[0]}`) ?? byId("view")).focus({ preventScroll: true });
    });
    byId("zoom-in").addEventListener("click", () => this.view.zoom(1.35));
    byId("zoom-out").addEventListener("click", () => this.view.zoom(1 / 1.35));
    byId("fit").addEventListener("click", () => this.view.fit());
    const repeated = DATA.bands.map((band, number) => (band.times > 1 ? number : -1)).filter((number) => number >= 0);
    byId("unfold").hidden = !repeated.length;
    byId("unfold").addEventListener("click", () => this.setUnfolded(this.unfolded.size ? [] : repeated, true));
  }

  setUnfolded(bands, fit) {
    this.unfolded = new Set(bands);
    this.scene = sceneOf(this.unfolded);
    byId("unfold").setAttribute("aria-pressed", String(this.unfolded.size > 0));
    byId("unfold").textContent = this.unfolded.size ? "Fold layers" : "Unfold layers";
    if (this.spots.contains(document.activeElement)) byId("view").focus({ preventScroll: true });
    for (const button of this.buttons.values()) button.remove();
    this.buttons.clear();
    if (fit) this.view.fit();
    this.view.redraw();
  }

  toggle(band) {
    const next = new Set(this.unfolded);
    if (!next.delete(band)) next.add(band);
    this.setUnfolded(next, true);
  }

  /** Select a vertex, and show it if it is out of sight or too small to be read. */
  select(vertex, { show = true } = {}) {
    this.selected = vertex;
    const box = this.scene.boxes[this.scene.boxOf[vertex]];
    if (show && box && (!this.sees(box) || this.view.k < 0.45)) this.view.show([box.x, box.y, box.width, box.height]);
    this.view.redraw();
    this.onSelect(vertex, box ? box.members : [vertex]);
  }

  sees(box) {
    const { x, y, k, width, height } = this.view;
    const [left, top] = [box.x * k + x, box.y * k + y];
    return left > 0 && top > 0 && left + box.width * k < width && top + box.height * k < height;
  }

  click(event) {
    const spot = event.target.closest("button");
    if (spot) {
      spot.act();
      // By the keyboard: on to what was opened. Escape leads back.
      if (event.detail === 0 && spot.dataset.kind === "box") byId("panel").focus({ preventScroll: true });
      return;
    }
    const box = byId("view").getBoundingClientRect();
    const hit = this.hit(...this.view.toWorld(event.clientX - box.x, event.clientY - box.y));
    if (hit?.members) this.select(this.memberOf(hit));
    else if (hit) this.toggle(hit.band);
  }

  /** Of a box's vertices the one that is selected already, or the first. */
  memberOf(box) {
    return box.members.includes(this.selected) ? this.selected : box.members[0];
  }

  hit(x, y) {
    const inside = (box, height = box.height) => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + height;
    return this.scene.boxes.find((box) => inside(box)) ?? this.scene.frames.find((frame) => inside(frame, HEAD));
  }

  // Drawing

  draw(context, view) {
    const { k } = view;
    const [left, top] = view.toWorld(0, 0);
    const [right, bottom] = view.toWorld(view.width, view.height);
    const seen = (box) => box.x < right && box.x + box.width > left && box.y < bottom && box.y + box.height > top;
    this.spots.style.transform = `translate(${view.x}px, ${view.y}px) scale(${k})`;
    context.translate(view.x, view.y);
    context.scale(k, k);
    for (const frame of this.scene.frames) if (seen(frame)) this.drawFrame(context, frame, k);
    this.drawEdges(context, k, (edge) => edge.left < right && edge.right > left && edge.top < bottom && edge.bottom > top);
    this.visible = this.scene.boxes.filter(seen);
    this.drawBoxes(context, k);
    if (k > 0.34) this.drawAmounts(context, k, (edge) => edge.left < right && edge.right > left && edge.top < bottom && edge.bottom > top);
  }

  drawFrame(context, frame, k) {
    context.fillStyle = COLOURS.raised;
    context.strokeStyle = COLOURS.line;
    context.lineWidth = Math.max(1, 1 / k);
    context.beginPath();
    context.roundRect(frame.x, frame.y, frame.width, frame.height, 12);
    context.fill();
    context.stroke();
    if (k < 0.16) return;
    context.fillStyle = COLOURS.accent;
    context.font = `600 ${readable(15, k, 26)}px ${SANS}`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillText(`${frame.open ? "▾" : "▸"} ${frame.title}`, frame.x + 14, frame.y + HEAD / 2 + 2);
  }

  drawEdges(context, k, seen) {
    const own = this.selected >= 0 ? this.scene.boxOf[this.selected] : -1;
    const groups = new Map();
    for (const edge of this.scene.edges) {
      if (!seen(edge)) continue;
      const touched = edge.from === own || edge.to === own;
      // A few widths are enough, and each is one stroke of the pen.
      const width = Math.max(Math.round(edge.thick * 2) / 2, (edge.bytes ? 1.2 : 0.5) / k);
      const key = `${touched} ${edge.bytes > 0} ${edge.next} ${width}`;
      if (!groups.has(key)) groups.set(key, { touched, moved: edge.bytes > 0, next: edge.next, width, edges: [] });
      groups.get(key).edges.push(edge);
    }
    context.lineCap = "butt";
    for (const group of [...groups.values()].sort((a, b) => a.touched - b.touched || a.moved - b.moved || a.width - b.width)) {
      const colour = group.moved ? (own < 0 || group.touched ? "move" : "move-dim") : group.touched ? "accent" : "still";
      context.strokeStyle = COLOURS[colour];
      context.lineWidth = group.touched && !group.moved ? Math.max(2, group.width) : group.width;
      context.setLineDash(group.next && k > 0.2 ? [7, 6 + group.width] : []);
      context.beginPath();
      const tip = k > 0.3 ? tipSize(group.width) - 1 : 0;
      for (const edge of group.edges) trace(context, edge, k, tip);
      context.stroke();
      if (k > 0.3) this.drawTips(context, group);
    }
    context.setLineDash([]);
  }

  drawTips(context, group) {
    context.fillStyle = context.strokeStyle;
    const size = tipSize(group.width);
    context.beginPath();
    for (const { x1, y1 } of group.edges) {
      context.moveTo(x1, y1);
      context.lineTo(x1 - size * 0.75, y1 - size);
      context.lineTo(x1 + size * 0.75, y1 - size);
    }
    context.fill();
  }

  drawBoxes(context, k) {
    const chosen = this.selected >= 0 ? this.scene.boxes[this.scene.boxOf[this.selected]] : null;
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    if (k < 0.14) return this.drawSpecks(context, chosen, k);
    for (const box of this.visible) {
      const vertex = VERTICES[box.members[0]];
      const source = vertex.cut === null;
      context.fillStyle = source ? COLOURS.source : COLOURS.box;
      context.strokeStyle = box === chosen ? COLOURS.accent : COLOURS["strong-line"];
      context.lineWidth = box === chosen ? 3.5 : 1.1;
      if (box.members.length > 1) {
        context.beginPath();
        context.roundRect(box.x + 4, box.y + 4, box.width, box.height, source ? box.height / 2 : 8);
        context.fill();
        context.stroke();
      }
      context.beginPath();
      context.roundRect(box.x, box.y, box.width, box.height, source ? box.height / 2 : 8);
      context.fill();
      context.stroke();
      const share = this.most ? sum(box.members.map((member) => movedFor(VERTICES[member]))) / box.members.length / this.most : 0;
      if (share > 0) {
        context.fillStyle = COLOURS.move;
        context.globalAlpha = 0.35 + 0.65 * Math.sqrt(share);
        context.beginPath();
        context.roundRect(box.x, box.y, 6, box.height, source ? [box.height / 2, 0, 0, box.height / 2] : [8, 0, 0, 8]);
        context.fill();
        context.globalAlpha = 1;
      }
      if (k > 0.2) this.drawText(context, box, vertex, k);
    }
    return undefined;
  }

  /** From far away, boxes are coloured specks. */
  drawSpecks(context, chosen, k) {
    for (const source of [true, false]) {
      context.fillStyle = source ? COLOURS.still : COLOURS["strong-line"];
      context.beginPath();
      for (const box of this.visible) if ((VERTICES[box.members[0]].cut === null) === source) context.rect(box.x, box.y, box.width, box.height);
      context.fill();
    }
    context.fillStyle = COLOURS.move;
    context.beginPath();
    for (const box of this.visible) if (box.members.some((member) => movedFor(VERTICES[member]))) context.rect(box.x, box.y, box.width, box.height);
    context.fill();
    if (!chosen) return;
    context.strokeStyle = COLOURS.accent;
    context.lineWidth = 3 / k;
    context.strokeRect(chosen.x - 4 / k, chosen.y - 4 / k, chosen.width + 8 / k, chosen.height + 8 / k);
  }

  drawText(context, box, vertex, k) {
    const many = box.members.length > 1 ? ` ×${box.members.length}` : "";
    const size = vertex.cut === null ? readable(13, k, 19) : readable(14, k, 26);
    const room = Math.floor((box.width - 22) / (size * 0.602)) - many.length;
    const x = box.x + 14;
    const far = vertex.cut === null || k < 0.5;
    const base = box.y + (far ? box.height / 2 + size * 0.34 : 20);
    context.font = `${vertex.cut === null ? "" : "600 "}${size}px ${MONO}`;
    const labels = DATA.words[vertex.labels];
    const whole = vertex.cut === null && labels ? `${vertex.name}[${labels}]` : vertex.name;
    const name = clip(whole, room);
    context.fillStyle = COLOURS.ink;
    context.fillText(name, x, base);
    if (many) {
      context.fillStyle = COLOURS.quiet;
      context.fillText(many, x + context.measureText(name).width, base);
    }
    if (far) return;
    context.font = `11.5px ${MONO}`;
    context.fillStyle = COLOURS.quiet;
    context.fillText(clip(rightSide(vertex), 25), x, box.y + 36);
    context.fillStyle = COLOURS.accent;
    context.fillText(clip(vertex.cut, 15), x, box.y + 51);
    const reduced = sum(box.members.map((member) => VERTICES[member].reduced));
    const kept = sum(box.members.map((member) => VERTICES[member].kept));
    if (reduced || kept) {
      context.textAlign = "right";
      context.fillStyle = COLOURS.move;
      context.fillText(reduced ? `Σ ${bytes(reduced)}` : `copy ${bytes(kept)}`, box.x + box.width - 9, box.y + 51);
      context.textAlign = "left";
    }
  }

  drawAmounts(context, k, seen) {
    const size = readable(12, k, 24);
    context.font = `${size}px ${SANS}`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const edge of this.scene.edges) {
      if (!edge.bytes || !seen(edge)) continue;
      const words = bytes(edge.bytes);
      const width = context.measureText(words).width + 8;
      const [x, y] = edge.words;
      context.fillStyle = COLOURS.back;
      context.globalAlpha = 0.88;
      context.beginPath();
      context.roundRect(x - width / 2, y - size * 0.65, width, size * 1.3, 4);
      context.fill();
      context.globalAlpha = 1;
      context.fillStyle = COLOURS.move;
      context.fillText(words, x, y + 0.5);
    }
  }

  // Keyboard: transparent buttons on the boxes in sight

  placeSpots() {
    const boxes = this.view.k >= 0.2 && (this.visible?.length ?? 0) <= 160 ? this.visible : [];
    const wanted = new Map();
    for (const frame of this.scene.frames) {
      if (this.view.k < 0.16 || !this.near(frame)) continue;
      const act = () => this.toggle(frame.band);
      wanted.set(`frame ${frame.x} ${frame.y}`, [frame, HEAD, `${frame.title}: ${frame.open ? "fold" : "unfold"}`, act, "fold"]);
    }
    for (const box of boxes) wanted.set(`box ${box.members[0]}`, [box, box.height, this.describe(box), () => this.select(this.memberOf(box), { show: false }), "box"]);
    for (const [key, button] of this.buttons) {
      if (wanted.has(key) || button === document.activeElement) continue;
      button.remove();
      this.buttons.delete(key);
    }
    const ordered = [...wanted].sort(([, [a]], [, [b]]) => a.y - b.y || a.x - b.x);
    for (const [key, [box, height, label, act, kind]] of ordered) {
      let button = this.buttons.get(key);
      if (!button) {
        button = make("button", { type: "button", "aria-label": label, "data-kind": kind, "data-vertex": kind === "box" ? VERTICES[box.members[0]].name : null,
          on: { focus: () => { if (button.matches(":focus-visible") && !this.sees(box)) this.view.show([box.x, box.y, box.width, box.height], this.view.k); } } });
        Object.assign(button.style, { left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${height}px` });
        this.buttons.set(key, button);
      }
      button.act = act;
    }
    // In the order in which they are read, without moving the one that has the focus.
    let after = null;
    for (const [key] of ordered) {
      const button = this.buttons.get(key);
      const here = after ? after.nextSibling : this.spots.firstChild;
      if (button !== here) {
        if (button === document.activeElement) { after = button; continue; }
        this.spots.insertBefore(button, here);
      }
      after = button;
    }
  }

  near(box) {
    const { x, y, k, width, height } = this.view;
    return box.x * k + x < width && (box.x + box.width) * k + x > 0 && box.y * k + y < height && box.y * k + y > -HEAD * k;
  }

  describe(box) {
    const vertex = VERTICES[box.members[0]];
    const many = box.members.length > 1 ? `, ${box.members.length} alike` : "";
    if (vertex.cut === null) return `${vertex.text}${many}`;
    return `${vertex.text}, cut ${vertex.cut}, ${bytes(movedFor(vertex))} moved${many}`;
  }
}

const tipSize = (width) => 5 + width * 0.7;

/** Add an edge to the path; from far away straight lines do. */
function trace(context, { points, around }, k, tip) {
  const [x0, y0] = points;
  const [x1, y1] = points.slice(-2);
  context.moveTo(x0, y0);
  if (k < 0.12) context.lineTo(x1, y1);
  else if (around !== null) {
    context.bezierCurveTo(x0, y0 + 30, around, y0 + 30, around, y0 - 6);
    context.lineTo(around, y1 + 6);
    context.bezierCurveTo(around, y1 - 30, x1, y1 - 30, x1, y1 - tip);
  } else {
    for (let p = 2; p < points.length; p += 2) {
      const [left, top, x, y] = [points[p - 2], points[p - 1], points[p], points[p + 1] - (p === points.length - 2 ? tip : 0)];
      if (left === x) context.lineTo(x, y);
      else context.bezierCurveTo(left, (top + y) / 2, x, (top + y) / 2, x, y);
    }
  }
}
