"use strict";
// The report's page. All data from rows enters the document as text nodes, never as markup.
(async () => {
  const FAILED = 1, RATIONALE_CUT = 2, CANDIDATE_CUT = 4;
  const LONG = 1200;          // characters of a text that are shown before "Show all"
  const LONG_IN_PRINT = 20000;
  const KEPT_CHUNKS = matchMedia("(max-width: 860px)").matches ? 50 : 600;  // chunks of texts that stay in memory
  const ROW = 62;             // height of a line of the list, in CSS pixels, as in the style sheet
  const $ = (id) => document.getElementById(id);

  function make(tag, properties = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  // ---- data ---------------------------------------------------------------------------------------------

  async function bytes(name) {
    const packed = $("data-" + name).textContent;
    let raw;
    if (Uint8Array.fromBase64) raw = Uint8Array.fromBase64(packed);
    else {
      const binary = atob(packed);
      raw = new Uint8Array(binary.length);
      for (let i = 0; i < binary.length; i++) raw[i] = binary.charCodeAt(i);
    }
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }
  const text = async (name) => new TextDecoder().decode(await bytes(name));

  if (typeof DecompressionStream === "undefined") {
    $("title").textContent = "This browser is too old for this report";
    $("about").textContent = "It needs DecompressionStream: Chrome 80, Firefox 113, Safari 16.4 or newer.";
    return;
  }
  const head = JSON.parse(await text("head"));
  const [series, group, scores, expected, confidence, length, flags] = await Promise.all([
    ["series", Int16Array], ["group", Int32Array], ["scores", Int16Array], ["expected", Int32Array],
    ["confidence", Int16Array], ["length", Int32Array], ["flags", Uint8Array],
  ].map(async ([name, Kind]) => new Kind(await bytes(name))));
  const N = head.ids.length, A = head.aspects.length;
  const [lowest, highest] = head.scale;

  const firstRow = [0], firstInstruction = [0];
  for (const [instructions, rows] of head.chunks) {
    firstRow.push(firstRow.at(-1) + rows);
    firstInstruction.push(firstInstruction.at(-1) + instructions);
  }
  function chunkOf(row) {
    let low = 0, high = head.chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (firstRow[middle] <= row) low = middle; else high = middle - 1;
    }
    return low;
  }
  const kept = new Map();
  function chunk(number) {
    let found = kept.get(number);
    if (found) kept.delete(number);
    else found = text("chunk-" + number).then(JSON.parse);
    kept.set(number, found);
    if (kept.size > KEPT_CHUNKS) kept.delete(kept.keys().next().value);
    return found;
  }
  async function judgement(row) {
    const number = chunkOf(row);
    const { instructions, rows } = await chunk(number);
    return read(instructions, rows, number, row);
  }
  function read(instructions, rows, number, row) {
    const [instruction, reference] = instructions[group[row] - firstInstruction[number]];
    const [candidate, rationale, error, thoughts, probabilities, source, cut, columns] = rows[row - firstRow[number]];
    return { row, instruction, reference, candidate, rationale, error, thoughts, probabilities, source, cut, columns };
  }
  const ofAspect = (column, aspect, row) => column[aspect * N + row];
  function together(row) {  // the rows of the same instruction
    let begin = row, end = row;
    while (begin > 0 && group[begin - 1] === group[row]) begin--;
    while (end < N - 1 && group[end + 1] === group[row]) end++;
    return Array.from({ length: end - begin + 1 }, (_, place) => begin + place);
  }

  const overall = new Float64Array(N), leastConfidence = new Float64Array(N), spread = new Float64Array(N);
  for (let row = 0; row < N; row++) {
    let sum = 0, least = Infinity;
    for (let aspect = 0; aspect < A; aspect++) {
      const mean = ofAspect(expected, aspect, row);
      sum += mean >= 0 ? mean / 1000 : ofAspect(scores, aspect, row);
      least = Math.min(least, ofAspect(confidence, aspect, row));
    }
    overall[row] = flags[row] & FAILED ? NaN : sum / A;
    leastConfidence[row] = least < 0 || flags[row] & FAILED ? NaN : least / 1000;
  }
  for (let row = 0; row < N;) {
    const rows = together(row), known = rows.map((each) => overall[each]).filter((value) => !Number.isNaN(value));
    const range = known.length > 1 ? Math.max(...known) - Math.min(...known) : NaN;
    for (const each of rows) spread[each] = range;
    row += rows.length;
  }

  const count = (number) => number.toLocaleString("en");
  const fixed = (number, digits = 2) => number === null || Number.isNaN(number) ? "–"
    : number.toFixed(digits).replace("-", "−");
  function scoreColour(score) {
    const ramp = head.colours.score, at = (score - lowest) / (highest - lowest) * (ramp.length - 1);
    const low = Math.min(ramp.length - 2, Math.floor(at)), part = at - low;
    const channel = (colour, place) => parseInt(colour.slice(1 + 2 * place, 3 + 2 * place), 16);
    const mixed = [0, 1, 2].map((place) =>
      Math.round(channel(ramp[low], place) * (1 - part) + channel(ramp[low + 1], place) * part));
    return mixed;
  }
  function paintScore(node, score) {
    const [red, green, blue] = scoreColour(score);
    node.style.background = `rgb(${red} ${green} ${blue})`;
    node.style.color = 0.3 * red + 0.59 * green + 0.11 * blue > 125 ? "#14171a" : "#ffffff";
  }
  function dot(index) {
    const node = make("i", { class: "dot", "aria-hidden": "true" });
    node.style.background = head.series[index].colour;
    return node;
  }

  // ---- tables -------------------------------------------------------------------------------------------

  function cell(value, kind, bounds) {
    if (kind === "text") return make("th", { scope: "row" }, value);
    if (kind === "word") return make("td", { class: "word" }, value ?? "–");
    if (kind !== "estimate" || value === null) return make("td", {}, value === null ? "–" : String(value));
    const node = make("td", {}, make("span", { class: "mean" }, fixed(value.value)));
    if (value.low !== null && value.low !== undefined) {
      node.append(make("span", { class: "interval" }, `${fixed(value.low)} to ${fixed(value.high)}`));
      if (bounds) {
        const [from, to] = bounds, place = (number) => `${100 * (number - from) / (to - from)}%`;
        const bar = make("span", { class: "bar" }), mark = make("span", { class: "mark" });
        const strip = make("span", { class: "strip", "aria-hidden": "true" }, bar, mark);
        bar.style.left = place(value.low);
        bar.style.right = `${100 - parseFloat(place(value.high))}%`;
        mark.style.left = place(value.value);
        node.append(strip);
      }
    }
    return node;
  }
  function fillTable(table, { caption, columns, rows, bounds, dots }) {
    if (caption) table.append(make("caption", {}, caption));
    const headings = columns.map(({ name, kind }) =>
      make("th", { scope: "col", class: kind === "text" || kind === "word" ? "word" : "" }, name));
    table.append(make("thead", {}, make("tr", {}, ...headings)));
    const body = rows.map((row, place) => {
      const cells = row.map((value, column) => cell(value, columns[column].kind, bounds));
      if (dots) cells[0].prepend(dot(dots[place]));
      return make("tr", {}, ...cells);
    });
    table.append(make("tbody", {}, ...body));
  }
  function showTables(section, shown) {
    if (!shown) return;
    $(section).hidden = false;
    const body = $(section + "-body");
    for (const lead of shown.leads ?? []) body.append(make("p", { class: "lead" }, lead));
    for (const one of shown.tables) {
      const table = make("table");
      fillTable(table, one.folded ? { ...one, caption: null } : one);
      const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": one.caption }, table);
      body.append(one.folded ? make("details", {}, make("summary", {}, one.caption), scroll) : scroll);
    }
  }

  // ---- the head of the page -------------------------------------------------------------------------------

  document.title = head.title;
  $("title").textContent = head.title;
  $("about").textContent = head.about;
  $("foot").textContent = head.foot;
  for (const notice of head.notices) $("notices").append(make("p", { class: "notice" }, notice));
  $("systems-lead").textContent = head.table.lead;
  fillTable($("systems-table"), head.table);
  for (const note of head.table.notes) $("systems-notes").append(make("p", { class: "lead" }, note));
  $("length-lead").textContent = head.length_lead;
  showTables("agreement", head.agreement);
  showTables("audit", head.audit);
  for (const section of document.querySelectorAll("main > section")) {
    const charts = section.querySelectorAll(".charts");
    if (charts.length && ![...charts].some((node) => head.figures[node.id.slice(7)]?.length)) section.hidden = true;
    const heading = section.querySelector("h2");
    if (heading && !section.hidden) $("nav").append(make("a", { href: "#" + section.id }, heading.textContent));
  }
  head.series.forEach(({ label }, index) => {
    $("legend").append(make("button", { type: "button", "aria-pressed": "false", onclick: highlight }, dot(index), label));
  });
  for (let step = 0; step < head.colours.score.length; step++) {
    const score = lowest + (highest - lowest) * step / (head.colours.score.length - 1);
    const swatch = make("i", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = head.colours.score[step];
    $("scale-legend").append(make("span", {}, swatch, String(+score.toFixed(1))));
  }

  // ---- charts ---------------------------------------------------------------------------------------------

  const figures = [];
  for (const [place, list] of Object.entries(head.figures)) {
    for (const { title, spec } of list) {
      const canvas = make("div", { class: "canvas" });
      $("charts-" + place).append(make("figure", {}, title ? make("figcaption", {}, title) : null, canvas));
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
      offerScores();
      $("by-score").value = datum.score;
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

  // ---- search, filters, order -----------------------------------------------------------------------------

  const state = { rows: [], at: -1, beside: -1, turn: 0, shown: 0, chosen: new Map() };
  const ORDERS = [
    ["instruction", "Instruction", null, false],
    ["overall", "Overall score", overall, true],
    ...head.aspects.map((name, aspect) => [name, name, (row) => {
      const mean = ofAspect(expected, aspect, row), score = ofAspect(scores, aspect, row);
      return score < 0 ? NaN : mean >= 0 ? mean / 1000 : score;
    }, true]),
    ["confidence", "Lowest confidence", leastConfidence, false],
    ["spread", "Difference between systems", spread, true],
    ["length", "Length", (row) => (length[row] < 0 ? NaN : length[row]), true],
  ];
  const STATES = [
    ["", "all", () => true],
    ["judged", "judged", (row) => !(flags[row] & FAILED)],
    ["failed", "failed", (row) => flags[row] & FAILED],
    ["cut", "rationale cut", (row) => flags[row] & RATIONALE_CUT],
    ["short", "candidate cut", (row) => flags[row] & CANDIDATE_CUT],
    ["chosen", "chosen for print", (row) => state.chosen.has(row)],
  ];
  const option = (value, label) => make("option", { value }, label);
  $("by-series").append(option("", "all"), ...head.series.map(({ label }, index) => option(index, label)));
  $("by-aspect").append(option("", "any"), ...head.aspects.map((name, aspect) => option(aspect, name)));
  $("by-state").append(...STATES.map(([value, label]) => option(value, label)));
  $("by-order").append(...ORDERS.map(([value, label]) => option(value, label)));
  function offerScores() {
    const before = $("by-score").value, options = [option("", "any")];
    for (let score = lowest; score <= highest; score++) options.push(option(score, String(score)));
    for (let score = lowest + 1; score < highest; score++) options.push(option("<" + score, `${score} or less`));
    for (let score = lowest + 1; score < highest; score++) options.push(option(">" + score, `${score} or more`));
    $("by-score").replaceChildren(...options);
    $("by-score").value = before;
    $("by-score").disabled = $("by-aspect").value === "";
    if ($("by-score").selectedIndex < 0 || $("by-score").disabled) $("by-score").value = "";
  }
  offerScores();

  function scoreTest() {
    const aspect = $("by-aspect").value, asked = $("by-score").value;
    if (aspect === "" || asked === "") return () => true;
    const bound = Number(asked.replace(/[<>]/, ""));
    const compare = asked[0] === "<" ? (score) => score <= bound : asked[0] === ">" ? (score) => score >= bound
      : (score) => score === bound;
    return (row) => ofAspect(scores, +aspect, row) >= 0 && compare(ofAspect(scores, +aspect, row));
  }
  function ordered(rows) {
    const [, , key] = ORDERS[$("by-order").selectedIndex];
    const descending = $("direction").getAttribute("aria-pressed") === "true";
    if (!key) return descending ? rows.toReversed?.() ?? [...rows].reverse() : rows;
    const value = typeof key === "function" ? key : (row) => key[row];
    const known = [], unknown = [];
    for (const row of rows) (Number.isNaN(value(row)) ? unknown : known).push(row);
    known.sort((one, other) => (descending ? value(other) - value(one) : value(one) - value(other)) || one - other);
    return [...known, ...unknown];
  }
  async function refresh() {
    const turn = ++state.turn, before = state.rows[state.at];
    const inSeries = $("by-series").value, words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const ofState = STATES[$("by-state").selectedIndex][2], ofScore = scoreTest();
    const rows = [];
    for (let row = 0; row < N; row++) {
      if ((inSeries === "" || series[row] === +inSeries) && ofState(row) && ofScore(row)) rows.push(row);
    }
    if (!words.length) return settle(ordered(rows), before, "");
    const found = [];
    let looked = 0, painted = performance.now();
    for (let place = 0; place < rows.length;) {
      const number = chunkOf(rows[place]), { instructions, rows: texts } = await chunk(number);
      if (turn !== state.turn) return undefined;
      for (; place < rows.length && rows[place] < firstRow[number + 1]; place++) {
        const each = read(instructions, texts, number, rows[place]);
        const said = [head.ids[each.row], head.series[series[each.row]].label, each.instruction, each.reference,
          each.candidate, each.rationale, each.error].join("\n").toLowerCase();
        if (words.every((word) => said.includes(word))) found.push(each.row);
        looked++;
      }
      if (performance.now() - painted > 80) {
        settle(found.slice(), before, `, ${Math.floor(100 * looked / rows.length)} % searched`);
        await new Promise((done) => setTimeout(done));
        if (turn !== state.turn) return undefined;
        painted = performance.now();
      }
    }
    return settle(ordered(found), before, "");
  }
  function settle(rows, before, more) {
    state.rows = rows;
    $("status").textContent = rows.length || more
      ? `${count(rows.length)} of ${count(N)} judgements${more}` : "No judgement matches. Clear a filter, or search for fewer words.";
    $("spacer").style.height = rows.length * ROW + "px";
    const at = rows.indexOf(before);
    if (at < 0) $("list").scrollTop = 0;
    choose(at >= 0 ? at : rows.length ? 0 : -1);
  }

  // ---- the list -------------------------------------------------------------------------------------------

  function paintList() {
    const list = $("list"), first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const last = Math.min(state.rows.length, first + Math.ceil(list.clientHeight / ROW) + 9);
    const lines = [];
    for (let place = first; place < last; place++) lines.push(line(place));
    $("spacer").replaceChildren(...lines);
    const active = $("line-" + state.at);
    if (active) list.setAttribute("aria-activedescendant", active.id);
    else list.removeAttribute("aria-activedescendant");
  }
  function line(place) {
    const row = state.rows[place];
    const marks = make("span", { class: "marks" });
    if (flags[row] & FAILED) marks.append(make("b", {}, "failed"));
    else {
      for (let aspect = 0; aspect < A; aspect++) {
        const score = ofAspect(scores, aspect, row), mark = make("i", { title: head.aspects[aspect] }, String(score));
        paintScore(mark, score);
        marks.append(mark);
      }
      marks.append(make("span", { class: "mean" }, fixed(overall[row])));
    }
    const node = make("div", {
      role: "option", id: "line-" + place, class: "line", "aria-selected": String(place === state.at),
      "aria-setsize": state.rows.length, "aria-posinset": place + 1, onclick: () => choose(place, "open"),
    },
    make("span", { class: "instruction" }, head.snippets[group[row]] || "(empty)"),
    make("span", { class: "who" }, dot(series[row]), head.series[series[row]].label,
      make("span", { class: "muted" }, " · " + head.ids[row]), state.chosen.has(row) ? " ✓" : null),
    marks);
    node.style.top = place * ROW + "px";
    return node;
  }
  let painting = 0;
  $("list").addEventListener("scroll", () => {
    cancelAnimationFrame(painting);
    painting = requestAnimationFrame(paintList);
  });
  function choose(place, open) {
    state.at = place;
    const list = $("list"), top = place * ROW;
    if (place >= 0) {
      if (top < list.scrollTop) list.scrollTop = top;
      else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    }
    paintList();
    paintDetail();
    if (open) $("reader").classList.add("open");
  }
  const step = (by) => state.rows.length && choose(Math.max(0, Math.min(state.rows.length - 1, state.at + by)));

  // ---- a judgement ----------------------------------------------------------------------------------------

  function prose(said, limit = LONG) {
    if (said === null || said === undefined) return make("p", { class: "muted" }, "The text was not found in the inputs.");
    if (said === "") return make("p", { class: "muted" }, "(empty)");
    const node = make("div", { class: "prose" });
    if (said.length <= limit * 1.2) node.textContent = said;
    else {
      // Not in the middle of a character that takes two units.
      const end = /[\ud800-\udbff]/.test(said[limit - 1]) ? limit - 1 : limit;
      const more = make("button", { type: "button", onclick: () => { node.textContent = said; } },
        `Show all ${count(said.length)} characters`);
      node.append(said.slice(0, end) + "… ", more);
    }
    return node;
  }
  function scoreTable(each) {
    const table = make("table", { class: "scores" });
    table.append(make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "word" }, "aspect"),
      make("th", { scope: "col" }, "score"), make("th", { scope: "col" }, "expected"),
      make("th", { scope: "col", class: "word" }, `probability of ${lowest} to ${highest}`))));
    head.aspects.forEach((name, aspect) => {
      const score = ofAspect(scores, aspect, each.row), mean = ofAspect(expected, aspect, each.row);
      const weights = each.probabilities?.[aspect], bars = make("span", { class: "bars", role: "img" });
      if (weights) {
        bars.setAttribute("aria-label", weights.map((share, rank) => `${lowest + rank}: ${(100 * share).toFixed(1)} %`).join(", "));
        bars.title = bars.getAttribute("aria-label");
        weights.forEach((share, rank) => {
          const bar = make("i", { class: lowest + rank === score ? "given" : "" });
          bar.style.setProperty("--share", share);
          bars.append(bar);
        });
      }
      const chip = make("i", { class: "chip" }, String(score));
      paintScore(chip, score);
      table.append(make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, chip),
        make("td", {}, mean >= 0 ? fixed(mean / 1000) : "–"), make("td", { class: "word" }, weights ? bars : "–")));
    });
    return table;
  }
  function card(each, limit) {
    const title = make("h4", {}, dot(series[each.row]), head.series[series[each.row]].label);
    const failed = flags[each.row] & FAILED;
    const parts = [title];
    if (failed) parts.push(make("p", { class: "notice" }, "Failed: " + each.error));
    else {
      parts.push(scoreTable(each), make("h5", {}, "Rationale"), prose(each.rationale, limit));
      if (flags[each.row] & RATIONALE_CUT) parts.push(make("p", { class: "muted" }, "The rationale was cut at its limit."));
      if (each.thoughts) parts.push(make("h5", {}, "Thoughts"), prose(each.thoughts, limit));
    }
    parts.push(make("h5", {}, "Candidate"), prose(each.candidate, limit));
    if (each.cut) parts.push(make("p", { class: "muted" }, `The judge did not see its last ${count(each.cut)} characters.`));
    const columns = Object.entries(each.columns ?? {}).filter(([, value]) => value !== null && JSON.stringify(value) !== "{}");
    if (columns.length) {
      const listed = columns.map(([name, value]) => make("div", {}, make("dt", {}, name),
        make("dd", {}, (typeof value === "string" ? value : JSON.stringify(value)).slice(0, LONG))));
      parts.push(make("details", {}, make("summary", {}, "Columns"), make("dl", {}, ...listed)));
    }
    parts.push(make("p", { class: "muted place" }, `${head.ids[each.row]} · ${each.source}`));
    return make("section", { class: "card", "aria-label": head.series[series[each.row]].label }, ...parts);
  }
  function body(shown, limit) {
    return [
      make("h3", {}, "Instruction"), prose(shown[0].instruction, limit),
      make("div", { class: shown.length > 1 ? "cards pair" : "cards" },
        make("section", { class: "card reference", "aria-label": "Reference" }, make("h4", {}, "Reference"),
          shown[0].reference === null && shown[0].instruction !== null
            ? make("p", { class: "muted" }, "This row has no reference.")
            : prose(shown[0].reference, shown.length > 1 ? limit / 3 : limit)),
        ...shown.map((each) => card(each, limit))),
    ];
  }
  const others = (row) => together(row).filter((other) => other !== row);
  async function paintDetail() {
    const shown = ++state.shown, row = state.rows[state.at], detail = $("detail");
    if (row === undefined) return detail.replaceChildren();
    const rest = others(row), beside = rest.find((other) => series[other] === state.beside);
    const each = await Promise.all([row, beside].filter((one) => one !== undefined).map(judgement));
    if (shown !== state.shown) return undefined;
    const choice = make("select", { id: "beside", onchange: (event) => {
      state.beside = event.target.value === "" ? -1 : series[+event.target.value];
      paintDetail().then(() => $("beside").focus());
    } }, option("", "nothing"), ...rest.map((other) => option(other, head.series[series[other]].label)));
    choice.value = beside ?? "";
    const print = make("button", { type: "button", id: "print", "aria-pressed": String(state.chosen.has(row)),
      onclick: chooseForPrint }, "Choose for print");
    detail.replaceChildren(
      make("div", { class: "detail-tools" },
        make("button", { type: "button", class: "back", onclick: back }, "Back"),
        make("span", { class: "muted" }, `${count(state.at + 1)} of ${count(state.rows.length)}`),
        make("button", { type: "button", "aria-label": "Previous", onclick: () => step(-1) }, "↑"),
        make("button", { type: "button", "aria-label": "Next", onclick: () => step(1) }, "↓"),
        make("label", {}, "Beside it ", choice), print),
      ...body(each, LONG));
    detail.scrollTop = 0;
    return undefined;
  }
  function nextBeside() {
    const row = state.rows[state.at];
    if (row === undefined) return;
    const rest = others(row), at = rest.findIndex((other) => series[other] === state.beside);
    state.beside = at + 1 < rest.length ? series[rest[at + 1]] : -1;
    paintDetail();
  }
  async function chooseForPrint() {
    const row = state.rows[state.at];
    if (row === undefined) return;
    if (state.chosen.has(row)) {
      state.chosen.get(row).remove();
      state.chosen.delete(row);
    } else {
      const page = make("article", { class: "printed" });
      state.chosen.set(row, page);
      $("chosen").append(page);
      page.append(...body([await judgement(row)], LONG_IN_PRINT));
    }
    $("print")?.setAttribute("aria-pressed", String(state.chosen.has(row)));
    paintList();
  }
  function back() {
    $("reader").classList.remove("open");
    $("list").focus({ preventScroll: true });
  }

  // ---- keys and tools -------------------------------------------------------------------------------------

  function clearTools() {
    $("tools").reset();
    $("direction").setAttribute("aria-pressed", "false");
    $("direction").textContent = "Ascending";
    offerScores();
  }
  function direct(descending) {
    $("direction").setAttribute("aria-pressed", String(descending));
    $("direction").textContent = descending ? "Descending" : "Ascending";
  }
  let typing = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(refresh, 150);
  });
  $("tools").addEventListener("change", ({ target }) => {
    if (target.id === "by-aspect") offerScores();
    if (target.id === "by-order") direct(ORDERS[target.selectedIndex][3]);
    if (target.id !== "search") refresh();
  });
  $("tools").addEventListener("submit", (event) => event.preventDefault());
  $("direction").addEventListener("click", ({ target }) => {
    direct(target.getAttribute("aria-pressed") !== "true");
    refresh();
  });
  $("reset").addEventListener("click", () => { clearTools(); refresh(); });
  $("keys-button").addEventListener("click", () => $("keys").showModal());

  const anywhere = {
    "/": () => { $("search").focus(); $("search").select(); },
    f: () => $("by-series").focus(),
    j: () => step(1),
    k: () => step(-1),
    b: nextBeside,
    p: chooseForPrint,
    "?": () => $("keys").showModal(),
    Escape: back,
  };
  const inList = {
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    Home: () => step(-Infinity),
    End: () => step(Infinity),
    PageDown: () => step(Math.floor($("list").clientHeight / ROW)),
    PageUp: () => step(-Math.floor($("list").clientHeight / ROW)),
    Enter: () => { $("reader").classList.add("open"); $("detail").focus(); },
  };
  const inSearch = {
    Enter: () => { clearTimeout(typing); refresh(); $("list").focus(); },
    ArrowDown: () => $("list").focus(),
    Escape: () => { if ($("search").value) { $("search").value = ""; refresh(); } else $("list").focus(); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    const where = event.target === $("search") ? inSearch
      : event.target.matches?.("input, select, textarea") ? { Escape: () => $("list").focus() }
        : event.target === $("list") ? { ...anywhere, ...inList } : anywhere;
    const act = where[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  let resizing = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => { paintList(); drawAll(); }, 200);
  });

  await refresh();
  document.documentElement.dataset.ready = "yes";
  await drawAll();
})();
