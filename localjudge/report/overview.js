// Everything above the judgements: tables, notices and charts.

// ---- tables ---------------------------------------------------------------------------------------------

const breakable = (name) => name.split(/(?<=[=_])/).flatMap((part, place) => (place ? [make("wbr"), part] : [part]));
function cell(value, kind, ends) {  // a number, an estimate with its interval, or words
  if (kind === "text") return make("th", { scope: "row" }, ...breakable(value));
  if (kind === "word") return make("td", { class: "word" }, value ?? "–");
  if (value === null || typeof value !== "object") return make("td", {}, value === null ? "–" : String(value));
  const node = make("td", { class: "figure" }, make("span", { class: "mean" }, fixed(value.value)));
  const { low, high } = value;
  if (low !== null || high !== null) {
    node.append(make("span", { class: "interval" }, high === null ? `≥\u00a0${fixed(low)}`
      : low === null ? `≤\u00a0${fixed(high)}` : `${fixed(low)}\u00a0to ${fixed(high)}`));
    if (ends && low !== null && high !== null) {
      const [from, to] = ends, place = (number) => 100 * (number - from) / (to - from);
      const bar = make("span", { class: "bar" }), mark = make("span", { class: "mark" });
      bar.style.left = `${place(low)}%`;
      bar.style.right = `${100 - place(high)}%`;
      mark.style.left = `${place(value.value)}%`;
      node.append(make("span", { class: "strip", "aria-hidden": "true" }, bar, mark));
    }
  }
  return node;
}
function endsOf(values) {  // the ends of all intervals of a column, so that one can compare them
  const known = values.flatMap((value) => (value === null ? [] : [value.low, value.high])).filter((end) => typeof end === "number");
  const ends = [Math.min(...known), Math.max(...known)];
  return ends[0] < ends[1] ? ends : null;
}
function rowOf(id, system) {  // the first row with an id and a system, whose label can end in the name of its run
  const rows = [...head.ids.keys()].filter((row) => head.ids[row] === id), names = system.split(" over ");
  const isOf = (row) => sides(row).every((index) => {
    const { label } = head.series[index];
    return names.some((name) => label === name || label.startsWith(`${name} · `));
  });
  return rows.find(isOf) ?? rows[0] ?? -1;
}
function fillTable(table, { caption, columns, rows }) {
  if (caption) table.append(make("caption", {}, caption));
  const headings = columns.map(({ name, kind }) => make("th", { scope: "col", class: kind === "number" ? "" : "word" }, ...breakable(name)));
  table.append(make("thead", {}, make("tr", {}, ...headings)));
  const isOfSystems = columns[0].name === "system";
  const ends = columns.map((_, column) => (isOfSystems ? endsOf(rows.map((row) => row[column])) : null));
  const body = rows.map((row) => {
    const cells = row.map((value, column) => cell(value, columns[column].kind, ends[column]));
    const index = isOfSystems ? head.series.findIndex(({ label }) => label === row[0]) : -1;
    if (index >= 0) cells[0].prepend(dot(index));
    const listed = columns[0].name === "row" ? rowOf(row[0], row[1]) : -1;
    const read = (event) => { event.preventDefault(); show([listed]); };
    if (listed >= 0) cells[0].replaceChildren(make("a", { href: "#judgements", onclick: read }, row[0]));
    return make("tr", {}, ...cells);
  });
  table.append(make("tbody", {}, ...body));
}
function showTables(section, { leads, tables, notes }) {
  $(section).hidden = false;
  const body = $(section + "-body");
  for (const lead of tables.length ? [] : $(section).querySelectorAll(":scope > .lead")) lead.remove();
  if (leads.length) $("h-" + section).after(make("p", { class: "verdict" }, leads[0]));
  for (const lead of leads.slice(1)) body.append(make("p", { class: "lead" }, lead));
  for (const one of tables) {
    const table = make("table");
    fillTable(table, one.folded ? { ...one, caption: null } : one);
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": one.caption }, table);
    const parts = [scroll, ...one.notes.map((note) => make("p", { class: "lead" }, note))];
    body.append(...(one.folded ? [make("details", {}, make("summary", {}, one.caption), ...parts)] : parts));
  }
  for (const note of notes) body.append(make("p", { class: "lead" }, note));
}

// ---- the head of the page -------------------------------------------------------------------------------

document.title = head.title;
$("title").textContent = head.title;
$("about").textContent = head.about;
$("foot").textContent = head.foot;
for (const notice of head.notices) $("notices").append(make("p", { class: "notice" }, notice));
document.body.dataset.kind = aspects[0].kind === "pair" ? "pairs" : "scores";
for (const [section, found] of Object.entries(head.sections)) if (found) showTables(section, found);
for (const section of document.querySelectorAll("main > section")) {
  const charts = section.querySelectorAll(".charts");
  if (charts.length && ![...charts].some((node) => head.figures[node.id.slice(7)]?.length)) section.hidden = true;
  const heading = section.querySelector("h2");
  if (heading && !section.hidden) $("nav").append(make("a", { href: "#" + section.id }, heading.textContent));
}
head.series.forEach(({ label }, index) => {
  $("legend").append(make("button", { type: "button", "aria-pressed": "false", onclick: highlight }, dot(index), label));
});
function showLegend(node, shown) {
  for (const [said, colour] of shown) {
    const swatch = make("i", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colour;
    node.append(make("span", {}, swatch, said));
  }
  return node;
}
const legends = head.figures.distribution?.map(({ legend }) => legend) ?? [];
if (legends.every((one) => JSON.stringify(one) === JSON.stringify(legends[0]))) {  // one legend for all
  showLegend($("scale-legend"), legends[0] ?? []);
  for (const one of legends) one.length = 0;
}

// ---- charts ---------------------------------------------------------------------------------------------

const figures = [];
for (const [place, list] of Object.entries(head.figures)) {
  for (const { title, legend, spec } of list) {
    const canvas = make("div", { class: "canvas" });
    $("charts-" + place).append(make("figure", {}, title ? make("figcaption", {}, title) : null,
      legend.length ? showLegend(make("div", { class: "scale-legend" }), legend) : null, canvas));
    figures.push({ spec, canvas, view: null });
  }
}
const config = {
  background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
  axis: {
    labelColor: "currentColor", titleColor: "currentColor", gridColor: "currentColor", domainColor: "currentColor",
    tickColor: "currentColor", gridOpacity: 0.1, domainOpacity: 0.25, tickOpacity: 0.25, labelOpacity: 0.8,
    titleOpacity: 0.65, titleFontWeight: 400, labelFontSize: 11, titleFontSize: 11, labelLimit: 130, labelPadding: 5,
  },
  axisY: { grid: false, domain: false, ticks: false },
  legend: { labelColor: "currentColor", titleColor: "currentColor", labelFontSize: 11, labelLimit: 200 },
};
function tip(_, event, __, value) {
  const box = $("tip");
  box.hidden = value === null || value === undefined || value === "";
  if (box.hidden) return;
  const parts = Object.entries(value).map(([name, shown]) => make("div", {}, make("span", {}, name), String(shown)));
  box.replaceChildren(...parts);
  const { innerWidth: width, innerHeight: height } = window;
  box.style.left = Math.max(8, Math.min(event.clientX + 14, width - box.offsetWidth - 8)) + "px";
  box.style.top = Math.max(8, Math.min(event.clientY + 14, height - box.offsetHeight - 8)) + "px";
}
function picked(_, item) {
  const datum = item?.datum;
  if (!datum) return;
  if (datum.row !== undefined) show([datum.row]);
  else if (datum.score !== undefined && datum.aspect !== undefined) {
    clearTools();
    $("by-series").value = datum.series ?? "";
    $("by-aspect").value = datum.aspect;
    offerScores(datum.score);
    refresh();
    $("judgements").scrollIntoView();
    $("list").focus({ preventScroll: true });
  }
}
async function show(rows) {
  clearTools();
  await refresh();
  choose(state.rows.indexOf(rows[0]), "open");
  $("judgements").scrollIntoView();
}
async function draw(figure) {
  const width = Math.floor(figure.canvas.clientWidth);
  if (!width || figure.width === width) return;
  figure.width = width;
  figure.view?.finalize();
  const sized = { ...figure.spec, width, autosize: { type: "fit-x", contains: "padding" } };
  figure.view = (await window.vegaEmbed(figure.canvas, sized, {
    mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, tooltip: tip, config,
  })).view;
  figure.view.addEventListener("click", picked);
}
async function drawAll() {
  if (!window.vegaEmbed) {
    const script = document.createElement("script");
    script.textContent = await text("library");
    document.head.append(script);
  }
  for (const figure of figures) {
    await draw(figure);
    await new Promise((done) => setTimeout(done));
  }
  document.documentElement.dataset.charts = "drawn";
}
function highlight({ currentTarget }) {
  const buttons = [...$("legend").children];
  const pressed = currentTarget.getAttribute("aria-pressed") !== "true";
  for (const button of buttons) button.setAttribute("aria-pressed", String(pressed && button === currentTarget));
  const active = pressed ? buttons.indexOf(currentTarget) : -1;
  for (const { spec, view } of figures) if (spec.params) view?.signal("active", active).run();
}
