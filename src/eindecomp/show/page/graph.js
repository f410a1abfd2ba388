// The graph: what is selected, what is unfolded, and how it is used by pointer and by keyboard.

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
      draw: (context, view) => {
        this.visible = drawGraph(context, view, this);
        this.spots.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.k})`;
      },
      extent: () => this.scene.extent,
      top: () => {
        const { x, y, width, height } = this.scene.boxes.reduce((a, b) => (b.y < a.y ? b : a));
        return [x, Math.min(y, this.scene.extent[1]), width, height];
      },
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
    const repeated = DATA.bands
      .map((band, number) => (band.times > 1 ? number : -1))
      .filter((number) => number >= 0);
    byId("unfold").hidden = !repeated.length;
    byId("unfold").addEventListener("click", () =>
      this.setUnfolded(this.unfolded.size ? [] : repeated, true),
    );
  }

  setUnfolded(bands, fit) {
    this.unfolded = new Set(bands);
    this.scene = sceneOf(this.unfolded);
    byId("unfold").setAttribute("aria-pressed", String(this.unfolded.size > 0));
    byId("unfold").textContent = this.unfolded.size ? "Fold layers" : "Unfold layers";
    if (this.spots.contains(document.activeElement)) byId("view").focus({ preventScroll: true });
    for (const button of this.buttons.values()) button.remove();
    this.buttons.clear();
    if (fit) this.view.open();
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
    if (show && box && (!this.sees(box) || this.view.k < 0.45))
      this.view.show([box.x, box.y, box.width, box.height]);
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
      if (event.detail === 0 && spot.dataset.kind === "box")
        byId("panel").focus({ preventScroll: true });
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
    const inside = (box, height = box.height) =>
      x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + height;
    return (
      this.scene.boxes.find((box) => inside(box)) ??
      this.scene.frames.find((frame) => inside(frame, HEAD))
    );
  }

  // Keyboard: transparent buttons on the boxes in sight

  placeSpots() {
    const boxes = this.view.k >= 0.2 && (this.visible?.length ?? 0) <= 160 ? this.visible : [];
    const wanted = new Map();
    for (const frame of this.scene.frames) {
      if (this.view.k < 0.16 || !this.near(frame)) continue;
      const act = () => this.toggle(frame.band);
      wanted.set(`frame ${frame.x} ${frame.y}`, [
        frame,
        HEAD,
        `${frame.title}: ${frame.open ? "fold" : "unfold"}`,
        act,
        "fold",
      ]);
    }
    for (const box of boxes)
      wanted.set(`box ${box.members[0]}`, [
        box,
        box.height,
        this.describe(box),
        () => this.select(this.memberOf(box), { show: false }),
        "box",
      ]);
    for (const [key, button] of this.buttons) {
      if (wanted.has(key) || button === document.activeElement) continue;
      button.remove();
      this.buttons.delete(key);
    }
    const ordered = [...wanted].sort(([, [a]], [, [b]]) => a.y - b.y || a.x - b.x);
    for (const [key, [box, height, label, act, kind]] of ordered) {
      let button = this.buttons.get(key);
      if (!button) {
        button = make("button", {
          type: "button",
          "aria-label": label,
          "data-kind": kind,
          "data-vertex": kind === "box" ? VERTICES[box.members[0]].name : null,
          on: {
            focus: () => {
              if (button.matches(":focus-visible") && !this.sees(box))
                this.view.show([box.x, box.y, box.width, box.height], this.view.k);
            },
          },
        });
        Object.assign(button.style, {
          left: `${box.x}px`,
          top: `${box.y}px`,
          width: `${box.width}px`,
          height: `${height}px`,
        });
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
        if (button === document.activeElement) {
          after = button;
          continue;
        }
        this.spots.insertBefore(button, here);
      }
      after = button;
    }
  }

  near(box) {
    const { x, y, k, width, height } = this.view;
    return (
      box.x * k + x < width &&
      (box.x + box.width) * k + x > 0 &&
      box.y * k + y < height &&
      box.y * k + y > -HEAD * k
    );
  }

  describe(box) {
    const vertex = VERTICES[box.members[0]];
    const many = box.members.length > 1 ? `, ${box.members.length} alike` : "";
    if (vertex.cut === null) return `${vertex.text}${many}`;
    return `${vertex.text}, cut ${vertex.cut}, ${bytes(movedFor(vertex))} moved${many}`;
  }
}
