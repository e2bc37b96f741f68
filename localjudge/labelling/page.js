"use strict";

// The keys: a digit is a value of a scale; other values have the first letter of their text, or a digit.

const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token") ?? "";
const LONG = 200_000; // characters of a text that are shown at once
const PIECE = 20_000;
// Characters that are not seen, or that turn the text around them.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|[\u{e0000}-\u{e007f}]/gu;
// A block of code in Markdown, to its fence or to the end of the text.
const CODE = /^ {0,3}(```|~~~)[^\n]*\n[\s\S]*?(?:^ {0,3}\1[^\n]*(?:\n|$)|(?![\s\S]))/gm;
let annotator = HEAD.annotator ?? sessionStorage.getItem("annotator") ?? "";
let row = null;
let seen = 0; // seconds for which the row was visible
let since = null;
let busy = false;

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// ---- texts: shown as they are; nothing in them is code, and nothing is invisible -------------------------

function piece(text) {
  const node = make("span", { dir: "auto" });
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    node.append(text.slice(from, found.index), make("span", { class: "control" }, "U+" + code));
    from = found.index + found[0].length;
  }
  node.append(text.slice(from));
  return node;
}

function write(box, text, to) {
  const shown = text.slice(0, to);
  let from = 0;
  for (const code of shown.matchAll(CODE)) {
    writePieces(box, shown, from, code.index);
    from = code.index + code[0].length;
    writePieces(box, shown, code.index, from, "code");
  }
  writePieces(box, shown, from, shown.length);
}

function writePieces(box, text, from, to, kind = "") {
  for (let at = from; at < to; ) {
    let end = Math.min(at + PIECE, to);
    const line = text.lastIndexOf("\n", end) + 1; // pieces end with lines, where there are any
    if (end < to && line > at) end = line;
    else if (/[\ud800-\udbff]/.test(text[end - 1] ?? "")) end += 1;
    const node = piece(text.slice(at, end).replace(/\n$/, ""));
    node.className = kind;
    box.append(node);
    at = end;
  }
}

function section(name, text) {
  const box = make("div", { class: "text", tabindex: "0", role: "region", "aria-label": name });
  write(box, text, LONG);
  const whole = make("section", {}, make("h2", {}, name), box);
  if (text.length > LONG) {
    const more = make("button", { type: "button" }, `Show the other ${(text.length - LONG).toLocaleString()} characters`);
    more.onclick = () => { box.replaceChildren(); write(box, text, text.length); more.remove(); };
    whole.append(more);
  }
  if (text === "") box.append(make("em", {}, "(empty)"));
  return whole;
}

// ---- the aspects ----------------------------------------------------------------------------------------

function keysOf(values) {
  if (values.every((value) => /^\d$/.test(value.text))) return values.map((value) => value.text);
  const first = values.map((value) => value.text[0].toLowerCase());
  const taken = ["s", "u", "c", "r"];
  const free = first.every((letter, at) => /[a-z]/.test(letter) && first.indexOf(letter) === at && !taken.includes(letter));
  if (free) return first;
  return values.map((_, at) => (at < 9 ? String(at + 1) : ""));
}

function scaleOf({ values }) { // which end is which, for numbers without a meaning of their own
  const ends = [values[0], values.at(-1)];
  const isClear = !ends.every((end) => /^-?\d+$/.test(end.text)) || ends.every((end) => end.means);
  return isClear ? "" : `${ends[0].text} is the lowest, ${ends[1].text} the highest`;
}
const scales = HEAD.aspects.map(scaleOf), isOneScale = new Set(scales).size === 1;
if (isOneScale && scales[0]) // once for all aspects
  $("aspects").append(make("p", { class: "help" }, `${scales[0]}${scales.length > 1 ? ", in each aspect" : ""}`));
const aspects = HEAD.aspects.map((aspect) => {
  const isNumber = aspect.values.length > 10 && aspect.values.every((value) => /^-?\d+$/.test(value.text));
  const keys = isNumber ? [] : keysOf(aspect.values);
  const field = make("fieldset", {}, make("legend", {}, aspect.name));
  if (aspect.description) {
    field.append(make("p", { id: `about-${aspect.name}` }, aspect.description));
    field.setAttribute("aria-describedby", `about-${aspect.name}`);
  }
  const values = make("div", { class: "values" });
  if (isNumber) {
    const low = aspect.values[0].text, high = aspect.values.at(-1).text;
    values.append(make("label", {}, `${low} to ${high}`, make("input", {
      type: "number", name: aspect.name, min: low, max: high, step: "1", inputmode: "numeric" })));
    for (const value of aspect.values) if (value.means) values.append(make("small", {}, `${value.text}: ${value.means}`));
  }
  aspect.values.forEach((value, at) => {
    if (isNumber) return;
    const label = make("label", {}, make("input", { type: "radio", name: aspect.name, value: value.text }), " ", String(value.label));
    if (keys[at] && keys[at] !== value.text) label.append(" ", make("kbd", {}, keys[at]));
    if (value.means) label.append(make("small", {}, value.means));
    values.append(label);
  });
  field.append(values);
  if (!isOneScale && scaleOf(aspect)) field.append(make("small", {}, scaleOf(aspect)));
  $("aspects").append(field);
  return { name: aspect.name, field, keys, inputs: [...field.querySelectorAll("input")] };
});

const chosen = ({ inputs }) => inputs[0].type === "number" ? inputs[0].value : inputs.find((input) => input.checked)?.value ?? "";
function focus({ inputs }, options = {}) {
  const input = inputs.find((each) => each.checked) ?? inputs[0];
  input.focus(options);
  if (input.type === "number") input.select();
}

function usable(aspect) {
  if (!aspect) return "every aspect has an answer; Enter saves.";
  const keys = aspect.keys.filter((key) => key !== "");
  return keys.length ? `${aspect.name} takes ${keys.join(", ")}.` : `${aspect.name} takes a number from ${aspect.inputs[0].min} to ${aspect.inputs[0].max}.`;
}

function goOn(answered) {
  const open = aspects[aspects.indexOf(answered) + 1 || aspects.length] ?? aspects.find((aspect) => chosen(aspect) === "");
  if (open) focus(open); else $("save").focus();
}

// ---- the row --------------------------------------------------------------------------------------------

function pause() { // the time of the row stands still
  if (since !== null) seen += (performance.now() - since) / 1000;
  since = null;
}

function show(answer) {
  $("said").textContent = answer.said ?? "";
  row = answer.row;
  const counts = row ?? answer;
  const total = counts.labelled + counts.skipped + counts.left;
  const pace = counts.labelled && counts.pace ? ` · ${Math.round(counts.pace)} s a row` : "";
  const skipped = counts.skipped ? `, ${counts.skipped} skipped` : "";
  $("progress").textContent = `${counts.labelled} labelled${skipped}, ${counts.left} left${pace}`;
  $("bar").value = total ? 1 - counts.left / total : 1;
  $("who").hidden = true;
  $("work").hidden = row === null;
  $("end").hidden = row !== null;
  if (row === null) return $("end").focus();
  const texts = [section("Instruction", row.instruction)];
  for (const [name, text] of Object.entries(row.fields)) texts.push(section(name, text));
  if (row.reference !== null) texts.push(section("Reference", row.reference));
  const names = row.responses.length > 1 ? ["Response A", "Response B"] : ["Response"];
  texts.push(make("div", { class: names.length > 1 ? "response pair" : "response" }, ...row.responses.map((text, at) => section(names[at], text))));
  if (row.judged) texts.push(section("The judge's answer", Object.entries(row.judged).map((pair) => pair.join(": ")).join("\n")));
  $("texts").replaceChildren(...texts);
  $("answer").reset();
  $("note").value = row.before?.note ?? "";
  for (const aspect of aspects) {
    const value = row.before?.values?.[aspect.name] ?? "";
    for (const input of aspect.inputs) if (input.type === "number") input.value = value; else input.checked = input.value === value;
  }
  skipping(false);
  window.scrollTo(0, 0);
  $("answer").scrollTop = 0; // on a wide page, the answers scroll by themselves
  focus(aspects[0], { preventScroll: true }); // the texts come first
  seen = 0;
  since = document.hidden ? null : performance.now();
}

document.addEventListener("visibilitychange", () => {
  pause();
  since = document.hidden ? null : performance.now();
});

async function ask(path, content) {
  if (busy) return;
  busy = true;
  try {
    const answer = await fetch(path, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ annotator, ...content }),
    });
    const found = await answer.json();
    if (answer.ok) show(found); else $("said").textContent = found.error;
  } catch {
    $("said").textContent = "Not saved: localjudge label does not answer. Start it again with the same --out, and open its new address.";
  } finally {
    busy = false;
  }
}

function save(skipped) {
  pause();
  since = performance.now();
  const seconds = Math.round(100 * seen) / 100;
  const values = Object.fromEntries(aspects.map((aspect) => [aspect.name, chosen(aspect)]));
  return ask("/label", { key: row.key, seconds, note: $("note").value, ...(skipped ? { skipped } : { values }) });
}

function skipping(is) {
  $("why").hidden = !is;
  $("answer").hidden = is;
  $("reason").value = "";
  if (is) $("reason").focus();
}

$("answer").onsubmit = (event) => {
  event.preventDefault();
  const open = aspects.find((aspect) => chosen(aspect) === "");
  if (open) { $("said").textContent = `${open.name} has no answer yet.`; focus(open); } else save(null);
};
$("why").onsubmit = (event) => { event.preventDefault(); save($("reason").value); };
$("skip").onclick = () => skipping(true);
$("back").onclick = () => { skipping(false); goOn(); };
for (const button of document.querySelectorAll(".undo")) button.onclick = () => ask("/undo", {});
$("who").onsubmit = (event) => { event.preventDefault(); sessionStorage.setItem("annotator", annotator = $("name").value.trim()); ask("/row", {}); };

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("why").hidden) $("back").click();
  const target = event.target;
  const types = target instanceof HTMLInputElement && target.type !== "radio";
  if (event.key === "u" && !$("end").hidden) ask("/undo", {});
  if (row === null || $("work").hidden || !$("why").hidden || event.ctrlKey || event.altKey || event.metaKey) return;
  if (types && !(target.type === "number" && /^[a-z]$/.test(event.key))) return;
  const key = event.key.toLowerCase();
  const aspect = aspects.find((each) => each.field.contains(target)) ?? aspects.find((each) => chosen(each) === "");
  const at = aspect ? aspect.keys.indexOf(key) : -1;
  if (at >= 0) {
    aspect.inputs[at].checked = true;
    $("said").textContent = "";
    goOn(aspect);
  } else if (key === "s") skipping(true);
  else if (key === "u") ask("/undo", {});
  else if (key === "c") $("note").focus();
  else if (key === "enter" && !(target instanceof HTMLButtonElement)) $("answer").requestSubmit();
  else {
    if (/^[^ ]$/u.test(event.key)) $("said").textContent = `${event.key} is not a key of this page: ${usable(aspect)}`;
    return;
  }
  event.preventDefault();
});

$("title").textContent = document.title = HEAD.title;
if (annotator) ask("/row", {}); else { $("who").hidden = false; $("name").focus(); }
