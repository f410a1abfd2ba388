// The graph: boxes in bands, repeated bands folded or unfolded, edges as thick as the bytes.

const GAP = 70; // between bands
const PAD = 26; // around the boxes of a repeated band
const HEAD = 34; // for its title
const NAME_FONT = "600 14px ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const TEXT_FONT = "11.5px ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const PLAIN_FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";

const clip = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const rightSide = (vertex) => (vertex.text.includes(" <- ") ? vertex.text.slice(vertex.text.indexOf(" <- ") + 4) : vertex.text);

/** What is drawn when the bands of `unfolded` show all their repetitions. */
function sceneOf(unfolded) {
  const scene = { boxes: [], frames: [], edges: [], boxOf: new Int32Array(VERTICES.length).fill(-1) };
  const place = (band, number, left, top, repetition) => {
    for (const [members, x, y, width, height] of band.boxes) {
      const own = repetition === null ? members : [members[repetition]];
      for (const vertex of own) scene.boxOf[vertex] = scene.boxes.length;
      scene.boxes.push({ x: left + x, y: top + y, width, height, members: own, band: number, folded: repetition === null && band.times > 1 });
    }
  };
  let top = 0;
  DATA.bands.forEach((band, number) => {
    if (band.times === 1) {
      place(band, number, -band.width / 2, top, null);
      top += band.height + GAP;
      return;
    }
    const [width, height] = [band.width + 2 * PAD, band.height + PAD + HEAD];
    const open = unfolded.has(number);
    const count = open ? band.times : 1;
    // Repetitions stand side by side, like words on lines about as wide as the screen is.
    const columns = Math.min(count, Math.max(1, Math.ceil(Math.sqrt((count * (height + GAP) * 1.7) / (width + GAP)))));
    const whole = columns * (width + GAP) - GAP;
    for (let k = 0; k < count; k += 1) {
      const left = -whole / 2 + (k % columns) * (width + GAP);
      const at = top + Math.floor(k / columns) * (height + GAP);
      const title = open ? `${k + 1} of ${band.times}` : `layer × ${band.times.toLocaleString("en")}`;
      scene.frames.push({ x: left, y: at, width, height, title, band: number, open });
      place(band, number, left + PAD, at + HEAD, open ? k : null);
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
    else found.set(key, { from, to, next, bytes: moved });
  }));
  const edges = [...found.values()];
  const most = edges.reduce((top, edge) => Math.max(top, edge.bytes), 1);
  for (const edge of edges) {
    edge.thick = edge.bytes ? 1.8 + 8 * Math.sqrt(edge.bytes / most) : 1.2;
    const [start, end] = [scene.boxes[edge.from], scene.boxes[edge.to]];
    edge.x0 = start.x + start.width / 2;
    edge.y0 = start.y + start.height;
    edge.x1 = end.x + end.width / 2;
    edge.y1 = end.y;
    // One that leads back goes around the boxes on their right.
    edge.around = edge.y1 < edge.y0 + 4 ? Math.max(start.x + start.width, end.x + end.width) + 14 : null;
    edge.left = Math.min(edge.x0, edge.x1) - 12;
    edge.right = Math.max(edge.x0, edge.x1, edge.around ?? -Infinity) + 40;
    edge.top = Math.min(edge.y0, edge.y1) - 40;
    edge.bottom = Math.max(edge.y0, edge.y1) + 40;
  }
  return edges.sort((a, b) => a.bytes - b.bytes);
}

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
    if (spot) return spot.act();
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
    if (k > 0.55) this.drawAmounts(context, (edge) => edge.left < right && edge.right > left && edge.top < bottom && edge.bottom > top);
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
    context.font = "600 " + PLAIN_FONT.replace("12px", "15px");
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
    context.lineCap = "round";
    for (const group of [...groups.values()].sort((a, b) => a.touched - b.touched || a.moved - b.moved || a.width - b.width)) {
      context.strokeStyle = group.moved ? COLOURS.move : group.touched ? COLOURS.accent : COLOURS.still;
      context.globalAlpha = group.moved && own >= 0 && !group.touched ? 0.45 : group.moved ? 0.85 : 1;
      context.lineWidth = group.touched && !group.moved ? Math.max(2, group.width) : group.width;
      context.setLineDash(group.next && k > 0.2 ? [7, 6 + group.width] : []);
      context.beginPath();
      for (const edge of group.edges) trace(context, edge, k);
      context.stroke();
      if (k > 0.3) this.drawTips(context, group);
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  drawTips(context, group) {
    context.fillStyle = context.strokeStyle;
    const size = 5 + group.width * 0.7;
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
      if (k > 0.3) this.drawText(context, box, vertex, k);
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
    const [x, y] = [box.x + 14, box.y];
    context.font = NAME_FONT;
    context.fillStyle = COLOURS.ink;
    if (vertex.cut === null) {
      context.font = NAME_FONT.replace("600 14px", "13px");
      const labels = DATA.words[vertex.labels];
      context.fillText(clip(vertex.name + (labels ? `[${labels}]` : ""), 22 - many.length) + many, x, y + box.height / 2 + 4.5);
      return;
    }
    const name = clip(vertex.name, 20 - many.length);
    context.fillText(name, x, y + 20);
    if (many) {
      context.fillStyle = COLOURS.quiet;
      context.fillText(many, x + context.measureText(name).width, y + 20);
    }
    if (k < 0.5) return;
    context.font = TEXT_FONT;
    context.fillStyle = COLOURS.quiet;
    context.fillText(clip(rightSide(vertex), 25), x, y + 36);
    context.fillStyle = COLOURS.accent;
    context.fillText(clip(vertex.cut, 15), x, y + 51);
    const own = sum(box.members.map((member) => VERTICES[member].reduced + VERTICES[member].kept));
    if (own) {
      context.textAlign = "right";
      context.fillStyle = COLOURS.move;
      context.fillText(`Σ ${bytes(own)}`, box.x + box.width - 9, y + 51);
      context.textAlign = "left";
    }
  }

  drawAmounts(context, seen) {
    context.font = PLAIN_FONT;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const edge of this.scene.edges) {
      if (!edge.bytes || !seen(edge)) continue;
      const words = bytes(edge.bytes);
      const width = context.measureText(words).width + 8;
      const [x, y] = edge.around === null ? [edge.x1 * 0.5 + edge.x0 * 0.5, (edge.y0 + edge.y1) / 2] : [edge.around + 16, (edge.y0 + edge.y1) / 2];
      context.fillStyle = COLOURS.back;
      context.globalAlpha = 0.88;
      context.beginPath();
      context.roundRect(x - width / 2, y - 8, width, 16, 4);
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

/** Add an edge to the path; from far away a straight line does. */
function trace(context, { x0, y0, x1, y1, around }, k) {
  context.moveTo(x0, y0);
  if (k < 0.12) context.lineTo(x1, y1);
  else if (around !== null) {
    const bend = 30;
    context.bezierCurveTo(x0, y0 + bend, around, y0 + bend, around, y0 - 6);
    context.lineTo(around, y1 + 6);
    context.bezierCurveTo(around, y1 - bend, x1, y1 - bend, x1, y1 - 3);
  } else {
    const bend = Math.max(18, (y1 - y0) / 2);
    context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1 - 3);
  }
}
