// A canvas that can be dragged, zoomed and walked by keys.

const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

const TOO_SMALL = 0.15; // a zoom at which boxes are specks
const READABLE = 0.7;

class View {
  /** `draw(context, view)` draws the world; `extent()` is its rectangle; `flat` zooms in x only;
   * `top()` is the rectangle to begin with where all of the world would be too small. */
  constructor(
    element,
    { draw, extent, top, flat = false, settled = () => {}, most = 4, margin = 24, left = 0 },
  ) {
    Object.assign(this, { element, draw, extent, top, flat, settled, most, margin, left });
    this.canvas = element.querySelector("canvas");
    this.context = this.canvas.getContext("2d");
    this.x = this.y = 0; // where the world's origin is on the screen
    this.k = 1; // pixels for each unit of the world
    this.pointers = new Map();
    this.dragged = false;
    this.fitted = "open"; // until somebody moves it: how it fits again when it is resized
    this.frames = []; // how long the last frames took to draw, in milliseconds
    this.listen();
    new ResizeObserver(() => this.resize()).observe(element);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    [this.width, this.height] = [width, height];
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    if (this.fitted) this[this.fitted](false);
    this.paint();
  }

  /** Draw with the next frame. */
  redraw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.asked);
    this.asked = null;
    if (!this.width) return;
    const began = performance.now();
    const ratio = this.canvas.width / this.width;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.draw(this.context, this);
    this.frames.push(performance.now() - began);
    if (this.frames.length > 240) this.frames.shift();
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.settled(), 90);
  }

  toWorld(x, y) {
    return [(x - this.x) / this.k, this.flat ? y : (y - this.y) / this.k];
  }

  /** The smallest zoom: a little more than everything. */
  least() {
    const [, , width, height] = this.extent();
    const whole = (this.width - this.left) / Math.max(width, 1e-9);
    return (
      (this.flat ? whole : Math.min(whole, this.height / Math.max(height, 1e-9))) *
      (this.flat ? 1 : 0.6)
    );
  }

  zoom(factor, atX = this.left + (this.width - this.left) / 2, atY = this.height / 2) {
    const k = Math.min(
      Math.max(this.k * factor, Math.min(this.least(), this.k)),
      Math.max(this.most, this.k),
    );
    this.x = atX - ((atX - this.x) / this.k) * k;
    this.y = atY - ((atY - this.y) / this.k) * k;
    this.k = k;
    this.moved();
  }

  pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.moved();
  }

  moved() {
    this.fitted = null;
    this.clamp();
    this.redraw();
  }

  /** Keep some of the world in sight. */
  clamp() {
    const [left, top, width, height] = this.extent();
    const keep = (at, low, size, room, start = 0) =>
      Math.min(
        Math.max(at, start + Math.min(room * 0.3, 80) - (low + size) * this.k),
        start + room - Math.min(room * 0.3, 80) - low * this.k,
      );
    if (this.flat)
      this.x = Math.min(
        this.left - left * this.k,
        Math.max(this.x, this.width - (left + width) * this.k),
      );
    else {
      this.x = keep(this.x, left, width, this.width);
      this.y = keep(this.y, top, height, this.height);
    }
  }

  /** Show everything, or the top of it where everything would be too small to see. */
  open(animated = true) {
    const whole = this.flat ? 1 : this.whole();
    if (whole >= TOO_SMALL) this.fit(animated);
    else {
      const [x, y, width] = this.top();
      const left = this.width / 2 - (x + width / 2) * READABLE;
      this.go(left, this.margin - y * READABLE, READABLE, animated);
    }
    this.fitted = "open";
    this.redraw();
  }

  /** The zoom that shows everything. */
  whole() {
    const [, , width, height] = this.extent();
    const room = 2 * this.margin;
    return Math.min((this.width - room) / width, (this.height - room) / height);
  }

  fit(animated = true, most = 1.15) {
    const [left, top, width, height] = this.extent();
    if (this.flat) {
      this.k = (this.width - this.left) / Math.max(width, 1e-9);
      this.x = this.left - left * this.k;
    } else {
      const k = Math.min(this.whole(), most);
      this.go(
        this.width / 2 - (left + width / 2) * k,
        this.height / 2 - (top + height / 2) * k,
        k,
        animated,
      );
    }
    this.fitted = "fit";
    this.redraw();
  }

  /** Show a rectangle of the world in the middle. */
  show([x, y, width, height], k = Math.max(this.k, 0.8)) {
    this.go(this.width / 2 - (x + width / 2) * k, this.height / 2 - (y + height / 2) * k, k, true);
    this.fitted = null;
  }

  go(x, y, k, animated) {
    clearTimeout(this.moving);
    const from = [this.x, this.y, this.k];
    if (!animated || reducedMotion.matches || !this.width) {
      [this.x, this.y, this.k] = [x, y, k];
      this.redraw();
      return;
    }
    const began = performance.now();
    const step = () => {
      const share = Math.min(1, (performance.now() - began) / 180);
      const eased = 1 - (1 - share) ** 3;
      // What is in the middle moves evenly when zooms are steps of equal ratio.
      const zoomed = from[2] * (k / from[2]) ** eased;
      const along = k === from[2] ? eased : (zoomed - from[2]) / (k - from[2]);
      this.k = zoomed;
      this.x = from[0] + (x - from[0]) * along;
      this.y = from[1] + (y - from[1]) * along;
      this.paint();
      if (share < 1) this.moving = setTimeout(step, 12);
    };
    step();
  }

  listen() {
    const { element } = this;
    element.addEventListener(
      "wheel",
      (event) => {
        // A page that is scrolled past must not get stuck here.
        if (!event.ctrlKey && !element.matches(":focus-within")) return;
        event.preventDefault();
        const box = element.getBoundingClientRect();
        const pixels = event.deltaY * (event.deltaMode ? 24 : 1);
        this.zoom(
          Math.exp(-Math.max(-120, Math.min(120, pixels)) * 0.0022),
          event.clientX - box.x,
          event.clientY - box.y,
        );
      },
      { passive: false },
    );
    element.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
      if (this.pointers.size === 1) {
        this.dragged = false;
        this.travelled = 0;
      }
    });
    element.addEventListener("pointermove", (event) => this.drag(event));
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
      element.addEventListener(end, (event) => {
        this.pointers.delete(event.pointerId);
        if (!this.pointers.size) element.classList.remove("dragging");
      });
    }
    // A drag that ends on a box is no click on it.
    element.addEventListener(
      "click",
      (event) => {
        if (!this.dragged || event.detail === 0) return;
        event.stopImmediatePropagation();
        event.preventDefault();
      },
      true,
    );
    element.addEventListener("keydown", (event) => this.key(event));
  }

  drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const [dx, dy] = [event.clientX - before[0], event.clientY - before[1]];
    this.travelled += Math.abs(dx) + Math.abs(dy);
    if (!this.dragged && this.travelled < 5) {
      this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
      return;
    }
    if (!this.dragged) {
      this.dragged = true;
      this.element.classList.add("dragging");
      this.element.setPointerCapture(event.pointerId);
    }
    if (this.pointers.size === 2) {
      const others = [...this.pointers].filter(([id]) => id !== event.pointerId)[0][1];
      const apart = (point) => Math.hypot(point[0] - others[0], point[1] - others[1]);
      const box = this.element.getBoundingClientRect();
      const now = [event.clientX, event.clientY];
      this.pan(dx / 2, dy / 2);
      this.zoom(
        apart(now) / Math.max(apart(before), 1),
        (now[0] + others[0]) / 2 - box.x,
        (now[1] + others[1]) / 2 - box.y,
      );
    } else this.pan(dx, dy);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const acts = {
      "+": () => this.zoom(1.3),
      "=": () => this.zoom(1.3),
      "-": () => this.zoom(1 / 1.3),
      0: () => this.fit(),
      ArrowLeft: () => this.pan(70, 0),
      ArrowRight: () => this.pan(-70, 0),
      ArrowUp: () => this.pan(0, 70),
      ArrowDown: () => this.pan(0, -70),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }
}
