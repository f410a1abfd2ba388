// Tables that sort by any column, filter by a word, and show more rows when asked.

const PAGE = 100; // rows at first, and after sorting or filtering
const MORE = 500; // rows that are added at once

/** `columns`: {title, value(row), cell(row), number, first}; rows are sorted by `value`. */
function sortableTable({ caption, columns, rows, words, by = null, down = true, note = null }) {
  const state = { by, down, filter: "" };
  const lines = new Map(); // rows that were shown once, as elements
  const body = make("tbody");
  const heads = columns.map((column, k) =>
    make(
      "th",
      { scope: "col", class: column.number ? "num" : null },
      make(
        "button",
        {
          type: "button",
          on: {
            click: () => {
              [state.by, state.down] = [k, state.by === k ? !state.down : Boolean(column.number)];
              fill();
            },
          },
        },
        column.title,
      ),
    ),
  );
  const count = make("span", { class: "count", role: "status" });
  const more = make("div", { class: "more", hidden: true });
  const search = make("input", {
    type: "search",
    placeholder: "Filter…",
    "aria-label": `Filter: ${caption}`,
    on: {
      input: () => {
        state.filter = search.value.trim().toLowerCase();
        fill();
      },
    },
  });

  function fill() {
    const terms = state.filter.split(/\s+/).filter(Boolean);
    const kept = rows.filter((row) =>
      terms.every((term) => words(row).toLowerCase().includes(term)),
    );
    if (state.by !== null) {
      const { value } = columns[state.by];
      const sign = state.down ? -1 : 1;
      const keyed = kept.map((row) => [value(row), row]);
      keyed.sort(([a], [b]) =>
        a === b
          ? 0
          : a === null
            ? 1
            : b === null
              ? -1
              : sign *
                (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b),
      );
      kept.splice(0, kept.length, ...keyed.map(([, row]) => row));
    }
    heads.forEach((head, k) => {
      if (k === state.by) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    body.replaceChildren();
    count.textContent = `${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    show(kept, PAGE);
  }

  /** Add so many rows to those that are shown: a browser takes seconds for thousands at once. */
  function show(kept, most) {
    const from = body.children.length;
    body.append(...kept.slice(from, from + most).map(line));
    const left = kept.length - body.children.length;
    more.hidden = left <= 0;
    if (left <= 0) return;
    const next = Math.min(left, MORE);
    more.replaceChildren(
      make(
        "button",
        { type: "button", on: { click: () => show(kept, MORE) } },
        `Show ${next.toLocaleString("en")} more`,
      ),
      make("span", { class: "count" }, ` of ${left.toLocaleString("en")}`),
    );
  }

  function line(row) {
    const made = lines.get(row);
    if (made) return made;
    const fresh = make(
      "tr",
      { class: row.ours ? "ours" : null },
      columns.map((column, k) =>
        make(
          k === 0 && !column.number ? "th" : "td",
          {
            scope: k === 0 && !column.number ? "row" : null,
            class: [column.number ? "num" : "", column.class ?? ""].join(" ").trim() || null,
          },
          column.cell(row),
        ),
      ),
    );
    lines.set(row, fresh);
    return fresh;
  }

  fill();
  return make(
    "div",
    { class: "table" },
    rows.length > 12 &&
      make(
        "div",
        { class: "tools" },
        make("label", {}, search),
        count,
        note && make("span", { class: "count" }, note),
      ),
    make(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      make(
        "table",
        {},
        make("caption", { class: "hidden" }, caption),
        make("thead", {}, make("tr", {}, heads)),
        body,
      ),
    ),
    more,
  );
}

function movesTable(open) {
  const rows = [];
  const lies = (word) => (word < 0 ? "" : DATA.words[word]);
  VERTICES.forEach((vertex, number) => {
    for (const [source, moved, from, to] of vertex.inputs) {
      if (moved)
        rows.push({
          moved,
          kind: "fetch",
          tensor: source,
          reader: number,
          from: lies(from),
          to: lies(to),
        });
    }
    const home = vertex.grids[0] ? DATA.words[vertex.grids[0][1]] : "";
    if (vertex.reduced)
      rows.push({
        moved: vertex.reduced,
        kind: "reduce",
        tensor: number,
        reader: number,
        from: "partial results",
        to: home,
      });
    if (vertex.kept)
      rows.push({
        moved: vertex.kept,
        kind: "second layout",
        tensor: number,
        reader: number,
        from: home,
        to: vertex.grids[1] ? DATA.words[vertex.grids[1][1]] : "",
      });
  });
  if (!rows.length) return make("p", { class: "note" }, "Nothing moves between devices.");
  const name = (number) => VERTICES[number].name;
  return sortableTable({
    caption: "What moves",
    rows,
    by: 0,
    words: (row) => `${row.kind} ${name(row.tensor)} ${name(row.reader)} ${row.from} ${row.to}`,
    columns: [
      { title: "bytes", number: true, value: (row) => row.moved, cell: (row) => amount(row.moved) },
      {
        title: "share",
        number: true,
        value: (row) => row.moved,
        cell: (row) => percent(row.moved / DATA.moved),
      },
      { title: "kind", value: (row) => row.kind, cell: (row) => row.kind },
      { title: "tensor", value: (row) => name(row.tensor), cell: (row) => open(row.tensor) },
      { title: "for", value: (row) => name(row.reader), cell: (row) => open(row.reader) },
      { title: "from", value: (row) => row.from, cell: (row) => row.from },
      { title: "to", value: (row) => row.to, cell: (row) => row.to },
    ],
  });
}

function verticesTable(open) {
  const parts = ["join", "aggregate", "repartition", ...(DATA.computes ? ["compute"] : [])];
  const rows = VERTICES.map((vertex, number) => ({ vertex, number, moved: movedFor(vertex) }));
  const part =
    (k) =>
    ({ vertex }) =>
      vertex.cost ? vertex.cost[k] : null;
  return sortableTable({
    caption: "Vertices",
    rows,
    words: ({ vertex }) => `${vertex.text} ${vertex.cut ?? ""}`,
    columns: [
      { title: "name", value: ({ vertex }) => vertex.name, cell: ({ number }) => open(number) },
      {
        title: "expression",
        class: "text",
        value: ({ vertex }) => rightSide(vertex),
        cell: ({ vertex }) => rightSide(vertex),
      },
      { title: "cut", value: ({ vertex }) => vertex.cut, cell: ({ vertex }) => vertex.cut ?? "" },
      ...parts.map((title, k) => ({
        title,
        number: true,
        value: part(k),
        cell: (row) => (row.vertex.cost ? cost(part(k)(row)) : ""),
      })),
      {
        title: "bytes moved",
        number: true,
        value: (row) => row.moved,
        cell: (row) => amount(row.moved),
      },
      {
        title: "layout of the result",
        value: ({ vertex }) => DATA.words[vertex.grids[0][1]],
        cell: ({ vertex }) => DATA.words[vertex.grids[0][1]],
      },
    ],
  });
}

function strategiesTable() {
  const rows = DATA.strategies.map((row, k) => ({ ...row, ours: k === 0 }));
  const most = Math.max(1, ...rows.map((row) => row.ratio ?? 0));
  const bar = (row) =>
    make(
      "span",
      { class: "ratio" },
      make(
        "span",
        { "aria-hidden": "true" },
        make("i", { style: { width: `${(100 * (row.ratio ?? most)) / most}%` } }),
      ),
      times(row.ratio),
    );
  return sortableTable({
    caption: "Strategies side by side",
    rows,
    words: (row) => `${row.name} ${row.strategy}`,
    columns: [
      { title: "plan", value: (row) => row.name, cell: (row) => row.name },
      { title: "cuts", value: (row) => row.strategy, cell: (row) => row.strategy },
      {
        title: "cost",
        number: true,
        value: (row) => row.cost,
        cell: (row) =>
          row.cost === null
            ? make("div", { class: "refused" }, row.refused ?? "–")
            : cost(row.cost),
      },
      {
        title: "times this plan",
        number: true,
        value: (row) => row.ratio ?? Infinity,
        cell: (row) => (row.cost === null ? "" : bar(row)),
      },
      {
        title: "gap",
        number: true,
        value: (row) => row.gap,
        cell: (row) =>
          row.cost === null
            ? ""
            : row.proved
              ? make("span", { class: "yes" }, "optimal")
              : percent(row.gap),
      },
      {
        title: "memory",
        number: true,
        value: (row) => row.memory,
        cell: (row) => (row.memory === null ? "" : bytes(row.memory)),
      },
      ...(rows.some((row) => row.over_any !== null)
        ? [
            {
              title: "times any schedule's least",
              number: true,
              value: (row) => row.over_any,
              cell: (row) => (row.over_any === null ? "" : times(row.over_any)),
            },
          ]
        : []),
    ],
  });
}
