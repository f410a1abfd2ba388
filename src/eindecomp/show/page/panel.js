// The panel: all there is to know of one vertex.

class Panel {
  constructor(select) {
    this.element = byId("panel");
    this.select = select;
    this.element.append(
      make("p", { class: "name nothing" }, "Nothing selected"),
      make(
        "p",
        { class: "hint" },
        "Click a box, or find a vertex by name, to see what it computes, how it is cut, which " +
          "device holds which tile, what it costs, and the next-best alternative.",
      ),
    );
  }

  show(number, members) {
    const vertex = VERTICES[number];
    this.element.replaceChildren(
      ...[
        this.head(vertex, number, members),
        this.facts(vertex),
        this.costs(vertex),
        this.reads(vertex),
        this.readers(number),
        this.grids(vertex),
        this.alternative(vertex, number),
      ]
        .flat()
        .filter(Boolean),
    );
    this.element.scrollTop = 0;
    byId("selected").textContent = `${vertex.name} is shown.`;
  }

  link(number) {
    return make(
      "button",
      { type: "button", class: "link", on: { click: () => this.select(number) } },
      VERTICES[number].name,
    );
  }

  head(vertex, number, members) {
    const at = members.indexOf(number);
    const step = (by) => this.select(members[(at + by + members.length) % members.length]);
    return [
      make(
        "p",
        {},
        make("span", { class: "name" }, vertex.name),
        make(
          "span",
          { class: "tag" },
          vertex.cut !== null
            ? "computed"
            : vertex.text.startsWith("input ")
              ? "input"
              : "filled in where it is read",
        ),
      ),
      members.length > 1 &&
        make(
          "p",
          { class: "member" },
          make(
            "button",
            { type: "button", "aria-label": "Previous of these", on: { click: () => step(-1) } },
            "‹",
          ),
          `${at + 1} of ${members.length} alike`,
          make(
            "button",
            { type: "button", "aria-label": "Next of these", on: { click: () => step(1) } },
            "›",
          ),
        ),
      make("code", { class: "expression" }, vertex.text),
    ];
  }

  facts(vertex) {
    const labels = DATA.words[vertex.labels].split(",");
    const shape = vertex.shape.length
      ? vertex.shape.map((size, d) => `${labels[d]} ${size.toLocaleString("en")}`).join(" × ")
      : "one number";
    const pairs = [
      ["shape", shape],
      ["type", vertex.dtype],
    ];
    if (vertex.cut !== null)
      pairs.push(["cut", vertex.cut.split(" ").map((cut) => make("span", { class: "chip" }, cut))]);
    return make(
      "dl",
      { class: "pairs" },
      pairs.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
    );
  }

  costs(vertex) {
    if (!vertex.cost) return null;
    const names = ["join", "aggregate", "repartition", ...(DATA.computes ? ["compute"] : [])];
    const total = sum(vertex.cost);
    const most = Math.max(...vertex.cost, 0) || 1;
    const lines = names.map((name, k) => [
      make("span", {}, name),
      make(
        "span",
        { class: "bar", "aria-hidden": "true" },
        make("i", { style: { width: `${(100 * vertex.cost[k]) / most}%` } }),
      ),
      amount(vertex.cost[k], cost),
    ]);
    const share = DATA.cost ? ` (${percent(total / DATA.cost)} of the plan)` : "";
    return [
      make("h3", {}, `What it costs: ${cost(total)}${total ? share : ""}`),
      make("div", { class: "parts" }, lines),
      vertex.reduced > 0 &&
        make(
          "p",
          { class: "hint" },
          `Partial results are added up: devices receive ${bytes(vertex.reduced)}.`,
        ),
      vertex.kept > 0 &&
        make(
          "p",
          { class: "hint" },
          `It is kept in a second layout too: devices receive ${bytes(vertex.kept)}.`,
        ),
      vertex.least && make("p", { class: "hint" }, `${vertex.least}.`),
      DATA.unit !== "bytes" &&
        make(
          "p",
          { class: "hint" },
          movedFor(vertex)
            ? `Devices receive ${bytes(movedFor(vertex))} for it in all.`
            : "Nothing moves for it.",
        ),
    ];
  }

  reads(vertex) {
    if (!vertex.inputs.length) return null;
    const line = ([source, moved, from, to]) => {
      const lies = from < 0 ? "wherever it is wanted" : DATA.words[from];
      const way =
        to < 0
          ? "its elements are not read"
          : from === to || from < 0
            ? lies
            : `from ${lies} to ${DATA.words[to]}`;
      return make(
        "li",
        {},
        this.link(source),
        " ",
        travels(moved),
        make(
          "span",
          { class: "from" },
          from < 0 && to >= 0 ? `${DATA.words[to]} (placed there for free)` : way,
        ),
      );
    };
    return [
      make("h3", {}, "Where its inputs come from"),
      make("ul", { class: "reads" }, vertex.inputs.map(line)),
    ];
  }

  readers(number) {
    const all = READERS[number];
    if (!all.length) return null;
    const line = ([reader, k]) =>
      make("li", {}, this.link(reader), " ", travels(VERTICES[reader].inputs[k][1]));
    const shown = all.slice(0, 12).map(line);
    if (all.length > 12) shown.push(make("li", { class: "from" }, `and ${all.length - 12} more`));
    return [make("h3", {}, "Read by"), make("ul", { class: "reads" }, shown)];
  }

  grids(vertex) {
    return vertex.grids
      .slice(0, 4)
      .map(([role, layout, grid]) => [
        make("h3", {}, `Tiles (${DATA.words[role]})`),
        make("p", { class: "hint" }, DATA.words[layout]),
        make("div", { class: "tiles scroll" }, tileTable(DATA.grids[grid])),
        DATA.grids[grid].left_out && make("p", { class: "hint" }, DATA.grids[grid].left_out),
      ])
      .flat();
  }

  alternative(vertex, number) {
    if (vertex.cut === null) return null;
    const found = DATA.alternatives.found[DATA.alternatives.of[number]];
    const words = found ? found.words : "not computed within the time limit";
    const of =
      found && found.vertex !== number
        ? ` (worked out for ${VERTICES[found.vertex].name}, which is cut and costs the same)`
        : "";
    return [
      make("h3", {}, "The next-best cut, everything else fixed"),
      make("p", {}, words + of + "."),
    ];
  }
}

const travels = (moved) =>
  moved ? amount(moved) : make("span", { class: "zero" }, "moves nothing");

/** A tile grid: each cell a tile with the devices that hold it. */
function tileTable(grid) {
  const corner = [grid.row, grid.column].filter(Boolean).join(" ↓ ");
  const cell = (tile) => {
    if (!tile) return make("td", { class: "gap" }, "…");
    const [devices, first] = tile;
    return first < 0
      ? make("td", { class: "gap" }, "–")
      : make("td", { style: { backgroundColor: DATA.colours[first] } }, devices);
  };
  return make(
    "table",
    {},
    make("caption", {}, "devices by tile"),
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        make(
          "th",
          { scope: "col" },
          corner ? `${corner}${grid.row && grid.column ? " →" : ""}` : "",
        ),
        grid.columns.map((words) => make("th", { scope: "col" }, words)),
      ),
    ),
    make(
      "tbody",
      {},
      grid.tiles.map((row, at) =>
        make("tr", {}, make("th", { scope: "row" }, grid.rows[at] ?? ""), row.map(cell)),
      ),
    ),
  );
}
