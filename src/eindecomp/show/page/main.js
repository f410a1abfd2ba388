// Puts the page together.

const section = (id) => byId(id).querySelector(".body");

function overview() {
  byId("figures").append(
    ...DATA.figures.map(({ name, value, note }) =>
      make(
        "div",
        {},
        make("dt", {}, name),
        make("dd", {}, make("div", { class: "value" }, value), make("div", { class: "why" }, note)),
      ),
    ),
  );
  const [what, costs, claim, found] = DATA.summary;
  byId("summary").append(
    make(
      "p",
      {},
      "A plan says how a computation on tensors is split over devices: every operation (a vertex " +
        "of the graph) is cut into pieces along its labels, each device computes a piece, and what " +
        "a device needs but does not hold is sent to it.",
    ),
    make("p", {}, what),
    make("p", {}, costs),
    make("p", {}, claim),
    make("p", { class: "small" }, found),
    make(
      "details",
      {},
      make("summary", {}, "What the words mean"),
      DATA.notes.map((note) => make("p", {}, note.replaceAll("`", ""))),
    ),
  );
  byId("title").textContent = "EinDecomp plan";
  byId("footer").textContent =
    `Written by EinDecomp ${DATA.version}. This file is complete: it loads nothing and sends nothing.`;
}

/** Colours as the reader or the button wants them; `paint` draws at once: printing does not wait. */
function colours(paint) {
  const button = byId("theme");
  const root = document.documentElement;
  const order = ["auto", "light", "dark"];
  let now = "auto";
  const show = (theme) => {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    readColours();
    paint();
  };
  button.addEventListener("click", () => {
    now = order[(order.indexOf(now) + 1) % order.length];
    button.textContent = now[0].toUpperCase() + now.slice(1);
    button.setAttribute("aria-label", `Colours: ${now === "auto" ? "automatic" : now}`);
    show(now);
  });
  let printing = false;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (!printing) show(now);
  });
  for (const event of ["beforeprint", "afterprint"])
    addEventListener(event, () => {
      printing = event === "beforeprint";
      show(printing ? "light" : now);
    });
}

/** Find vertices by name or expression: those whose names begin so come first. */
function search(select) {
  const [input, list] = [byId("search"), byId("found")];
  let [found, at] = [[], -1];
  const mark = (next) => {
    at = next;
    [...list.children].forEach((item, k) => item.setAttribute("aria-selected", String(k === at)));
    if (at >= 0) {
      list.children[at].scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", list.children[at].id);
    } else input.removeAttribute("aria-activedescendant");
  };
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
  };
  const choose = (k) => {
    if (!found.length) return;
    close();
    select(found[Math.max(k, 0)]);
  };
  const look = () => {
    const wanted = input.value.trim().toLowerCase();
    const rank = (vertex) => {
      const name = vertex.name.toLowerCase();
      return name === wanted
        ? 0
        : name.startsWith(wanted)
          ? 1
          : name.includes(wanted)
            ? 2
            : vertex.text.toLowerCase().includes(wanted)
              ? 3
              : 4;
    };
    found = wanted
      ? VERTICES.map((vertex, number) => [rank(vertex), number])
          .filter(([order]) => order < 4)
          .sort((a, b) => a[0] - b[0] || a[1] - b[1])
          .slice(0, 40)
          .map(([, number]) => number)
      : [];
    list.replaceChildren(
      ...found.map((number, k) =>
        make(
          "li",
          {
            role: "option",
            id: `found-${k}`,
            on: { pointerdown: (event) => event.preventDefault(), click: () => choose(k) },
          },
          make("b", {}, VERTICES[number].name),
          make("span", {}, rightSide(VERTICES[number])),
        ),
      ),
    );
    if (wanted && !found.length)
      list.replaceChildren(
        make("li", { role: "option", "aria-disabled": "true" }, "no such vertex"),
      );
    list.hidden = !wanted;
    input.setAttribute("aria-expanded", String(Boolean(wanted)));
    mark(found.length ? 0 : -1);
  };
  input.addEventListener("input", look);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (found.length)
        mark((at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length);
    } else if (event.key === "Enter") choose(at);
    else if (event.key === "Escape") close();
  });
}

function start() {
  readColours();
  overview();
  const graph = new Graph();
  const panel = new Panel((vertex) => graph.select(vertex));
  graph.onSelect = (vertex, members) => panel.show(vertex, members);
  const openVertex = (number) => {
    graph.select(number);
    byId("graph").scrollIntoView();
    byId("panel").focus({ preventScroll: true });
  };
  const open = (number) =>
    make(
      "button",
      { type: "button", class: "link", on: { click: () => openVertex(number) } },
      nameOf(number),
    );
  search((vertex) => graph.select(vertex));
  const sections = [
    ["overview", "Overview"],
    ["graph", "Graph"],
  ];
  if (DATA.strategies.length) {
    byId("strategies").hidden = false;
    section("strategies").append(strategiesTable());
    sections.push(["strategies", "Strategies"]);
  }
  section("moves").append(movesTable(open));
  section("vertices").append(verticesTable(open));
  sections.push(["moves", "What moves"], ["vertices", "Vertices"]);
  byId("nav").append(...sections.map(([id, words]) => make("a", { href: `#${id}` }, words)));
  colours(() => graph.view.paint());
  // For the console, and for tests.
  globalThis.eindecomp = { graph, select: openVertex, words: { bytes, times } };
}

start();
