// How the graph is drawn on a canvas: less of it the farther away it is.

const MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";

/** The size of words in the world: from farther away they grow, so that they can still be read. */
const readable = (size, k, most) => Math.min(Math.max(size, 10 / k), most);

const clip = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

/** Draw all that is in sight, and return its boxes. */
function drawGraph(context, view, graph) {
  const { k } = view;
  const [left, top] = view.toWorld(0, 0);
  const [right, bottom] = view.toWorld(view.width, view.height);
  const seen = (box) =>
    box.x < right && box.x + box.width > left && box.y < bottom && box.y + box.height > top;
  const crossing = (edge) =>
    edge.left < right && edge.right > left && edge.top < bottom && edge.bottom > top;
  context.translate(view.x, view.y);
  context.scale(k, k);
  for (const frame of graph.scene.frames) if (seen(frame)) drawFrame(context, frame, k);
  drawEdges(context, graph, k, crossing);
  const boxes = graph.scene.boxes.filter(seen);
  const chosen = graph.selected >= 0 ? graph.scene.boxes[graph.scene.boxOf[graph.selected]] : null;
  if (k < 0.14) drawSpecks(context, boxes, chosen, k);
  else
    for (const box of boxes)
      drawBox(
        context,
        box,
        graph.most && box.moved / box.members.length / graph.most,
        box === chosen,
        k,
      );
  if (k > 0.34) drawAmounts(context, graph, k, crossing);
  return boxes;
}

function drawFrame(context, frame, k) {
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
  context.fillText(
    `${frame.open ? "▾" : "▸"} ${frame.title}`,
    frame.x + 14,
    frame.y + HEAD / 2 + 2,
  );
}

function drawEdges(context, graph, k, seen) {
  const own = graph.selected >= 0 ? graph.scene.boxOf[graph.selected] : -1;
  const groups = new Map();
  for (const edge of graph.scene.edges) {
    if (!seen(edge)) continue;
    const touched = edge.from === own || edge.to === own;
    // A few widths are enough, and each is one stroke of the pen.
    const width = Math.max(Math.round(edge.thick * 2) / 2, (edge.bytes ? 1.2 : 0.5) / k);
    const key = `${touched} ${edge.bytes > 0} ${edge.next} ${edge.faint} ${width}`;
    if (!groups.has(key))
      groups.set(key, {
        touched,
        moved: edge.bytes > 0,
        next: edge.next,
        faint: edge.faint,
        width,
        edges: [],
      });
    groups.get(key).edges.push(edge);
  }
  context.lineCap = "butt";
  for (const group of [...groups.values()].sort(
    (a, b) => a.touched - b.touched || a.moved - b.moved || a.width - b.width,
  )) {
    const colour = colourOf(group, own >= 0);
    context.strokeStyle = COLOURS[colour];
    context.lineWidth = group.touched && !group.moved ? Math.max(2, group.width) : group.width;
    context.setLineDash(group.next && k > 0.2 ? [7, 6 + group.width] : []);
    context.beginPath();
    const tip = k > 0.3 ? tipSize(group.width) - 1 : 0;
    for (const edge of group.edges) trace(context, edge, k, tip);
    context.stroke();
    if (k > 0.3) drawTips(context, group);
  }
  context.setLineDash([]);
}

/** The colour of lines: those of the selected box stand out. */
function colourOf({ moved, touched, faint }, isSelecting) {
  if (moved) return touched || !isSelecting ? "move" : "move-dim";
  return touched ? "accent" : faint ? "line" : "still";
}

function drawTips(context, group) {
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

/** A box, with an edge that is the stronger the larger its share of what moves is. */
function drawBox(context, box, share, isChosen, k) {
  const vertex = VERTICES[box.members[0]];
  const source = vertex.cut === null;
  const radius = source ? box.height / 2 : 8;
  context.fillStyle = source ? COLOURS.source : COLOURS.box;
  context.strokeStyle = isChosen ? COLOURS.accent : COLOURS["strong-line"];
  context.lineWidth = isChosen ? 3.5 : 1.1;
  for (const shift of box.members.length > 1 ? [4, 0] : [0]) {
    context.beginPath();
    context.roundRect(box.x + shift, box.y + shift, box.width, box.height, radius);
    context.fill();
    context.stroke();
  }
  if (share > 0) {
    context.fillStyle = COLOURS.move;
    context.globalAlpha = 0.35 + 0.65 * Math.sqrt(share);
    context.beginPath();
    context.roundRect(box.x, box.y, 6, box.height, [radius, 0, 0, radius]);
    context.fill();
    context.globalAlpha = 1;
  }
  if (k > 0.2) drawText(context, box, vertex, k);
}

/** From far away, boxes are coloured specks. */
function drawSpecks(context, boxes, chosen, k) {
  for (const source of [true, false]) {
    context.fillStyle = source ? COLOURS.still : COLOURS["strong-line"];
    context.beginPath();
    for (const box of boxes)
      if ((VERTICES[box.members[0]].cut === null) === source)
        context.rect(box.x, box.y, box.width, box.height);
    context.fill();
  }
  context.fillStyle = COLOURS.move;
  context.beginPath();
  for (const box of boxes) if (box.moved) context.rect(box.x, box.y, box.width, box.height);
  context.fill();
  if (!chosen) return;
  context.strokeStyle = COLOURS.accent;
  context.lineWidth = 3 / k;
  context.strokeRect(
    chosen.x - 4 / k,
    chosen.y - 4 / k,
    chosen.width + 8 / k,
    chosen.height + 8 / k,
  );
}

function drawText(context, box, vertex, k) {
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
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
  const { reduced, kept } = box;
  if (reduced || kept) {
    context.textAlign = "right";
    context.fillStyle = COLOURS.move;
    context.fillText(
      reduced ? `Σ ${bytes(reduced)}` : `copy ${bytes(kept)}`,
      box.x + box.width - 9,
      box.y + 51,
    );
    context.textAlign = "left";
  }
}

function drawAmounts(context, graph, k, seen) {
  const size = readable(12, k, 24);
  context.font = `${size}px ${SANS}`;
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const edge of graph.scene.edges) {
    if (!edge.bytes || !seen(edge)) continue;
    const words = bytes(edge.bytes);
    const width = context.measureText(words).width + 3;
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
      const [left, top, x, y] = [
        points[p - 2],
        points[p - 1],
        points[p],
        points[p + 1] - (p === points.length - 2 ? tip : 0),
      ];
      if (left === x) context.lineTo(x, y);
      else context.bezierCurveTo(left, (top + y) / 2, x, (top + y) / 2, x, y);
    }
  }
}
