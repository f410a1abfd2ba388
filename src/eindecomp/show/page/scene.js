// What is drawn of the graph: boxes in bands, repeated bands folded or unfolded, and edges.

const GAP = 70; // between bands
const PAD = 26; // around the boxes of a repeated band
const HEAD = 34; // for its title

/** What is drawn when the bands of `unfolded` show all their repetitions. */
function sceneOf(unfolded) {
  const scene = {
    boxes: [],
    frames: [],
    edges: [],
    lines: new Map(),
    boxOf: new Int32Array(VERTICES.length).fill(-1),
  };
  const place = (band, number, left, top, repetition) => {
    const first = scene.boxes.length;
    for (const [from, to, words, points] of band.lines) {
      const moved = (numbers) => numbers.map((p, k) => p + (k % 2 ? top : left));
      scene.lines.set(`${first + from} ${first + to} false`, [
        moved(points),
        words && moved(words),
      ]);
    }
    for (const [members, x, y, width, height] of band.boxes) {
      const own = repetition === null ? members : [members[repetition]];
      for (const vertex of own) scene.boxOf[vertex] = scene.boxes.length;
      const total = (part) => sum(own.map((vertex) => part(VERTICES[vertex])));
      scene.boxes.push({
        x: left + x,
        y: top + y,
        width,
        height,
        members: own,
        band: number,
        folded: repetition === null && band.times > 1,
        frame: band.times > 1 ? scene.frames.at(-1) : null,
        moved: total(movedFor),
        reduced: total((vertex) => vertex.reduced),
        kept: total((vertex) => vertex.kept),
      });
    }
  };
  const shapes = DATA.bands.map((band, number) => shapeOf(band, unfolded.has(number)));
  let top = 0;
  DATA.bands.forEach((band, number) => {
    const { width, height, count, columns, at } = shapes[number];
    if (band.times === 1) {
      // Near the layer that comes next, which reads it, or else below the last one.
      const middle =
        shapes[number + 1]?.at(0) ?? shapes[number - 1]?.at(shapes[number - 1].count - 1) ?? 0;
      place(band, number, middle - band.width / 2, top, null);
      top += band.height + GAP;
      return;
    }
    for (let k = 0; k < count; k += 1) {
      const title = unfolded.has(number)
        ? `${k + 1} of ${band.times}`
        : `layer × ${band.times.toLocaleString("en")}`;
      const frame = {
        x: at(k) - width / 2,
        y: top + Math.floor(k / columns) * (height + GAP),
        width,
        height,
        title,
        band: number,
        open: unfolded.has(number),
      };
      scene.frames.push(frame);
      place(band, number, frame.x + PAD, frame.y + HEAD, frame.open ? k : null);
    }
    top += Math.ceil(count / columns) * (height + GAP);
  });
  scene.edges = edgesOf(scene);
  const rectangles = [...scene.boxes, ...scene.frames];
  const low = (key) => rectangles.reduce((least, box) => Math.min(least, box[key]), Infinity);
  const high = (key, size) =>
    rectangles.reduce((most, box) => Math.max(most, box[key] + box[size]), -Infinity);
  scene.extent = rectangles.length
    ? [low("x"), low("y"), high("x", "width") - low("x"), high("y", "height") - low("y")]
    : [0, 0, 1, 1];
  return scene;
}

/** The size of a band's frame, how many there are, on lines of how many, and the middle of each. */
function shapeOf(band, open) {
  const [width, height] =
    band.times > 1 ? [band.width + 2 * PAD, band.height + PAD + HEAD] : [band.width, band.height];
  const count = open ? band.times : 1;
  // Repetitions stand side by side on lines about as wide as the screen; every other line runs back.
  const columns = Math.min(
    count,
    Math.max(1, Math.ceil(Math.sqrt((count * (height + GAP) * 1.7) / (width + GAP)))),
  );
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
  for (const box of scene.boxes)
    box.members.forEach((vertex, k) => {
      repetition[vertex] = k;
    });
  VERTICES.forEach((vertex, number) =>
    vertex.inputs.forEach(([source, moved]) => {
      const [from, to] = [scene.boxOf[source], scene.boxOf[number]];
      const [start, end] = [scene.boxes[from], scene.boxes[to]];
      const next =
        start.folded && start.band === end.band && repetition[source] !== repetition[number];
      const key = `${from} ${to} ${next}`;
      const edge = found.get(key);
      if (edge) edge.bytes += moved;
      else found.set(key, { key, from, to, next, bytes: moved });
    }),
  );
  const edges = [...found.values()];
  const most = edges.reduce((top, edge) => Math.max(top, edge.bytes), 1);
  for (const edge of edges) {
    edge.thick = edge.bytes ? 1.8 + 8 * Math.sqrt(edge.bytes / most) : 1.2;
    const [start, end] = [scene.boxes[edge.from], scene.boxes[edge.to]];
    const [points, words] = scene.lines.get(edge.key) ?? [null, null];
    edge.points = points ?? straight(start, end);
    edge.faint = !points && !edge.bytes && !edge.next;
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
  // Many lines between layers that move nothing would hide those that do; a few are clear.
  if (edges.filter((edge) => edge.faint).length < 40) for (const edge of edges) edge.faint = false;
  return edges.sort((a, b) => a.bytes - b.bytes);
}

/** Where a line that leads up has room: beside the boxes of a folded layer, or between two layers. */
function upAt(start, end) {
  if (start.frame && start.frame === end.frame) return end.frame.x + end.frame.width - 12;
  const to = end.frame ?? end;
  return start.x < to.x ? to.x - GAP / 2 : to.x + to.width + GAP / 2;
}

/** From the bottom of one box to the top of another. */
const straight = (start, end) => [
  start.x + start.width / 2,
  start.y + start.height,
  end.x + end.width / 2,
  end.y,
];
