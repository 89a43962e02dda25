"use strict";
/* The page of `harness site`. The results of the advisor are computed by reports/advice. */
const page = JSON.parse(document.getElementById("data").textContent);
const { table, families } = page;
let choices;
const comma = (number) => Math.round(number).toLocaleString("en-US");

/* ---- the state of the page, which is in its address ---- */

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const controls = () => $$("form.needs-js [name]");
const sorting = { key: "", descending: false };
let defaults = "";

function state() {
  const values = new URLSearchParams();
  for (const control of controls()) {
    if (control.type === "checkbox") {
      if (control.checked) values.append(control.name, control.value);
    } else values.append(control.name, control.value);
  }
  if (sorting.key) values.append("sort", (sorting.descending ? "-" : "") + sorting.key);
  return values;
}

function save() {
  const all = state();
  const hash = new URLSearchParams();
  const initial = new URLSearchParams(defaults);
  for (const name of new Set([...all.keys(), ...initial.keys()])) {
    const values = all.getAll(name).join(",");
    if (values !== initial.getAll(name).join(",")) hash.set(name, values);
  }
  // Commas are plain in an address.
  const text = hash.toString().replaceAll("%2C", ",");
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

function restore() {
  const text = location.hash.slice(1);
  if (!text.includes("=")) return;
  const values = new URLSearchParams(text);
  const initial = new URLSearchParams(defaults);
  for (const control of controls()) {
    const value = values.get(control.name) ?? initial.getAll(control.name).join(",");
    if (control.type === "checkbox") control.checked = value.split(",").includes(control.value);
    else control.value = value;
    if (control.tagName === "SELECT" && control.selectedIndex < 0) control.selectedIndex = 0;
  }
  const [, minus, key] = /^(-?)(.*)$/.exec(values.get("sort") ?? "");
  sorting.key = $(`.sortable [data-key="${CSS.escape(key)}"]`) ? key : "";
  sorting.descending = minus === "-";
}

/* ---- the matrix ---- */

function sortMatrix() {
  for (const of of $$(".sortable")) sortTable(of, $$("thead th", of));
}

function sortTable(of, heads) {
  const column = heads.findIndex((head) => head.dataset.key === sorting.key);
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  if (column < 0) return;
  heads[column].ariaSort = sorting.descending ? "descending" : "ascending";
  const body = $("tbody", of), sign = sorting.descending ? -1 : 1;
  const value = (row) => row.children[column].dataset.v;
  const rows = [...body.rows].sort((a, b) => {
    const [first, second] = [value(a), value(b)];
    if (first === "" || second === "") return (first === "") - (second === "");
    const numbers = Number(first) - Number(second);
    return sign * (Number.isNaN(numbers) ? first.localeCompare(second) : numbers);
  });
  body.append(...rows);
}

function filterMatrix() {
  const form = $("#filters"), at = form.elements.namedItem("at").value;
  const family = form.elements.family?.value ?? "";
  const claims = ["linear", "recurrent"].filter((name) => form.elements[name].checked);
  const rows = $$(".sortable tbody tr");
  for (const row of rows)
    row.hidden = claims.some((name) => row.dataset[name] !== "1")
      || (family !== "" && row.dataset.family !== family);
  for (const head of $$(".sortable thead th")) {
    const out = at !== "" && "length" in head.dataset && head.dataset.length !== at;
    for (const row of head.closest("table").rows) row.children[head.cellIndex].hidden = out;
  }
  const shown = rows.filter((row) => !row.hidden).length;
  $("#count").textContent = shown === rows.length ? "" : `${shown} of ${rows.length} variants of both tables`;
}

function makeSortable() {
  for (const head of $$(".sortable thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const again = sorting.key === head.dataset.key;
      sorting.descending = again ? !sorting.descending : "descending" in head.dataset;
      sorting.key = head.dataset.key;
      sortMatrix();
      save();
    });
  }
}

/* A tap focuses an entry, which shows its interval; it is no stop of the tab key. */
for (const entry of $$(".matrix td:has(small)")) entry.tabIndex = -1;

/* ---- the advisor ---- */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const short = (value) => (Math.abs(value) >= 100 ? comma(value)
  : Math.abs(value) < 1e-4 ? String(Number(value.toPrecision(3))) : value.toPrecision(3));

function bytes(count) {
  const power = Math.min(Math.floor(Math.log(Math.max(count, 1)) / Math.log(1024)), 4);
  return `${short(count / 1024 ** power)} ${UNITS[power]}`;
}

function amount(text) {
  const parts = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*$/i.exec(text);
  return parts ? Math.round(Number(parts[1]) * 1024 ** "bkmgt".indexOf(parts[2].toLowerCase() || "b")) : NaN;
}

function query() {
  const fields = $("#advisor").elements, memory = fields.memory.value.trim();
  return {
    length: Number(fields.namedItem("length").value),
    pass: fields.pass.value,
    memory: memory === "" ? null : amount(memory),
    needs: $$("#advisor [name=needs]:checked").map((box) => box.value),
  };
}

/* The result of reports/advice for a query, without the rows that need more memory. */
function advise({ length, pass, memory, needs }) {
  const used = needs.filter((name) => table.usable.includes(name));
  const not_run = needs.filter((name) => table.not_run.includes(name));
  const run = not_run.length ? `harness run --suite ${table.suite} --questions ${not_run.join(",")}` : "";
  const found = { used, unanswered: needs.filter((name) => !used.includes(name)), not_run, run };
  const refuse = (refused) => ({ ...found, refused, members: [], dominated: [], inferred: [],
    excluded: {}, commands: [], recommended: "" });
  const form = table.forms[needs[0]];
  if (!choices.lengths.length) return refuse("no cost is measured");
  const remedy = ["prefill", "decode"].includes(pass)
    ? "ask for a causal question, or for pass train or forward" : "ask for each by itself";
  const twoForms = `a layer has one form, and this asks for two; ${remedy}`;
  if (needs.some((name) => table.forms[name] !== form)) return refuse(twoForms);
  if (used.length > page.most_needs)
    return refuse(`more than ${page.most_needs} questions; harness advise takes any number`);
  const stored = choices.results[`${pass} ${length} ${used.join(",") || form}`];
  if (!stored) return refuse(twoForms);
  // The results of all questions that no variant answers are stored once.
  const unbeaten = needs.filter((name) => !used.length && name in table.unbeaten).map((name) =>
    `no variant is separably better than ${table.unbeaten[name].baseline} at ${table.questions[name]}; `
    + `the best mean is ${table.unbeaten[name].best}`);
  if (stored.refused && unbeaten.length) return refuse(unbeaten.join("; "));
  const fits = (row) => memory === null || stored.memory[row] <= memory;
  const members = stored.members.filter(({ row }) => fits(row))
    .map((member) => ({ ...member, tied: member.tied.filter(fits) }));
  const [largest] = members.toSorted((one, other) => other.memory - one.memory);
  const outside = Object.keys(stored.memory).filter((row) => !fits(row));
  return {
    ...stored, ...found, members,
    recommended: largest?.recommended ?? "", sentence: largest?.sentence ?? "",
    dominated: stored.dominated.filter(fits), inferred: stored.inferred.filter(fits),
    excluded: outside.length ? { ...stored.excluded, "needs more memory": outside } : stored.excluded,
  };
}

const memoryOf = (key) => (key.startsWith("decode") ? "decoding memory" : "peak memory");

function element(tag, children = [], attributes = {}) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...[children].flat());
  return node;
}

function answerTable({ key, used, members }) {
  const heads = ["mechanism", ...used.map((name) => table.heads[name]),
    table.units[key] === "ratio" ? "time, × softmax" : "time, ms", memoryOf(key), "faster than softmax from",
    "tied with", "can be used in"];
  const rows = members.map(({ row, groups, cells, tied, uses }) => {
    const texts = [...cells.slice(1), tied.join(", ") || "–", uses.map((place) => page.places[place]).join(", ") || "–"];
    const line = element("tr", [
      element("th", element("a", row, { href: `#${$(`tr[data-row="${row}"] a`).hash.slice(1)}` }), { scope: "row" }),
      ...texts.map((text) => element("td", text)),
    ]);
    groups.forEach((group, i) => { line.children[i + 1].className = `rank-group-${Math.min(group, 5)}`; });
    return line;
  });
  return element("div", element("table", [
    element("thead", element("tr", heads.map((text) => element("th", text, { scope: "col" })))),
    element("tbody", rows),
  ]), { class: "scroll", role: "region", "aria-label": "Variants that suit, scrollable", tabindex: "0" });
}

function showAnswer() {
  const asked = query(), box = $("#answer");
  const bad = Number.isNaN(asked.memory) ? "Memory: give an amount, as 2 GiB, or nothing."
    : asked.needs.length ? "" : "Choose what it must be good at.";
  if (bad) {
    box.replaceChildren(element("p", bad, { class: "refused" }));
    return;
  }
  const result = advise(asked);
  const count = result.members.length;
  const parts = [];
  if (result.refused) parts.push(element("p", `No answer: ${result.refused}.`, { class: "refused" }));
  else if (!count) parts.push(element("p", "No variant does all of this.", { class: "refused" }));
  else {
    parts.push(element("h2", result.sentence), answerTable(result));
    parts.push(element("p", "No other variant is at least as good in all of this and better in something.", { class: "note" }));
  }
  for (const name of asked.needs.filter((need) => need in table.question_notes))
    parts.push(element("p", `${table.questions[name]}: ${table.question_notes[name]}`, { class: "note" }));
  for (const name of result.used.filter((need) => need in table.unbeaten))
    parts.push(element("p", `No variant is separably better than ${table.unbeaten[name].baseline} at ${table.questions[name]}.`,
      { class: "note" }));
  const notes = Object.entries(result.excluded).map(([group, rows]) => [group, rows.join(", ")]);
  if (result.dominated.length && count) notes.unshift(["worse, dearer or both", result.dominated.join(", ")]);
  const titles = (names) => names.map((name) => table.questions[name]).join(", ");
  const atBaseline = result.unanswered.filter((name) => !result.not_run.includes(name));
  if (atBaseline.length)
    parts.push(element("p", `No variant is above the baseline of ${titles(atBaseline)}: not used here.`, { class: "note" }));
  if (result.not_run.length)
    parts.push(element("p", [`No variant has two seeds of ${titles(result.not_run)}; to run them: `,
      element("code", result.run)], { class: "note" }));
  if (result.inferred.length)
    notes.unshift(["time and memory inferred, as the mean over the layers", result.inferred.join(", ")]);
  const list = (items) => element("ul", items.map(([name, text]) => element("li", [element("b", `${name}: `), text])));
  const measures = result.commands.map((command) => ["to measure what is missing", element("code", command)]);
  if (result.refused) parts.push(list(measures));
  else parts.push(element("details", [element("summary", "Why not the others?"), list([...notes, ...measures])]));
  box.replaceChildren(...parts);
  return result.members.map((member) => member.row);
}

/* ---- the charts: the rows of the answer in colour, at most eight, the rest grey ---- */

let chosen = [];
const rowOf = new Map(table.rows.map((row) => [row.row, row]));
const MOST = 8;

const mixed = (family, share) => `color-mix(in oklab, var(--f${families.indexOf(family)}) ${share}, var(--ink))`;

/* Dashes tell coloured rows of one family apart. */
function styles() {
  const names = [...new Set([...chosen, "softmax", "primal"])].filter((name) => rowOf.has(name));
  const used = {};
  return new Map(names.slice(0, MOST).map((name) => {
    const { family } = rowOf.get(name);
    used[family] = (used[family] ?? -1) + 1;
    const dash = ["none", "7 4", "2 4", "10 3 2 3"][used[family] % 4];
    return [name, { dash, stroke: mixed(family, "var(--keep)"), text: mixed(family, "55%") }];
  }));
}

function draw(box, label, rows, marks, options) {
  const width = Math.min($(box).clientWidth || 640, 1100);
  const style = styles();
  const narrow = width < 560;
  const chart = Plot.plot({
    width, height: narrow ? 320 : 420, marginRight: narrow ? 12 : 120, marginLeft: 56, marginBottom: 42,
    style: { background: "transparent", fontSize: "12px" }, ariaLabel: label,
    ...options, marks: marks(rows, style, narrow),
  });
  chart.setAttribute("role", "img");
  // Inside of an image nothing has a label.
  for (const group of chart.querySelectorAll("g[aria-label]")) {
    group.dataset.mark = group.getAttribute("aria-description") ?? group.getAttribute("aria-label");
    group.removeAttribute("aria-label");
    group.removeAttribute("aria-description");
  }
  $(box).replaceChildren(chart);
  separate($$(`${box} [data-mark=text] text`));
}

/* Move labels down until none covers another. */
function separate(labels) {
  const at = (label) => /translate\(([-\d.]+),([-\d.]+)\)/.exec(label.getAttribute("transform")).slice(1).map(Number);
  let last = -Infinity;
  for (const label of labels.sort((a, b) => at(a)[1] - at(b)[1])) {
    const [x, y] = at(label);
    last = Math.max(y, last + 14);
    label.setAttribute("transform", `translate(${x},${last})`);
  }
}

function lines(x, y, title) {
  return (rows, style, narrow) => {
    const grey = rows.filter((row) => !style.has(row.row));
    const bright = rows.filter((row) => style.has(row.row));
    const of = (name) => (row) => style.get(row.row)[name];
    return [
      Plot.line(grey, { x, y, z: "row", stroke: "var(--grey)", strokeOpacity: 0.55, strokeWidth: 1 }),
      ...[...style].map(([name, { stroke, dash }]) => Plot.line(bright.filter((row) => row.row === name),
        { x, y, stroke, strokeWidth: 2.2, strokeDasharray: dash })),
      Plot.text(bright, Plot.selectLast({ x, y, z: "row", text: "row", fill: of("text"), stroke: "var(--paper)", strokeWidth: 4,
        ...(narrow ? { textAnchor: "end", dy: -8 } : { textAnchor: "start", dx: 7 }) })),
      Plot.tip(rows, Plot.pointer({ x, y, title, maxRadius: 500, fill: "var(--paper)", stroke: "var(--line)" })),
    ];
  };
}

function costChart() {
  const key = $("#cost-form [name=cost]").value, quantity = Number($("[name=quantity]").value);
  const ratio = table.units[key] === "ratio";
  const scale = quantity === 4 ? 1 / 2 ** 20 : ratio ? 1 : 1000;
  const unit = quantity === 4 ? `${memoryOf(key)} of a sample, MiB` : ratio ? "time relative to softmax" : "time, ms";
  const rows = table.rows.flatMap((row) => (row.points[key] ?? []).map((point) => ({
    row: row.row, length: point[0], value: point[quantity] * scale, cross: row.crossovers[key] ?? null,
  })));
  const plain = lines("length", "value", (point) => `${point.row}\n${comma(point.length)} tokens: ${short(point.value)}\nfaster from ${point.cross?.text ?? "–"}`);
  const bars = (style) => table.rows.map((row) => ({ row: row.row, ...row.crossovers[key] }))
    .filter((bar) => style.has(bar.row) && bar.low && bar.high);
  const marks = (points, style, narrow) => [
    ratio && quantity === 1 ? Plot.ruleY([1], { stroke: "var(--soft)" }) : null,
    ...plain(points, style, narrow),
    ratio && quantity === 1 ? Plot.ruleY(bars(style), {
      x1: "low", x2: "high", y: 1, stroke: (bar) => style.get(bar.row).stroke, strokeWidth: 9,
      ariaDescription: "crossover",
    }) : null,
  ];
  draw("#cost-chart", `${unit} against tokens, ${table.labels[key]}`, rows, marks, {
    x: { type: "log", base: 2, label: "tokens", ticks: table.lengths[key], tickFormat: (n) => (n % 1024 ? n : `${n / 1024}k`), tickSize: 0 },
    y: { type: "log", label: unit, grid: true, tickFormat: (n) => String(Number(n.toPrecision(2))), ticks: 5, tickSize: 0 },
  });
}

function stateChart() {
  if (!$("#state-form")) return;
  const question = $("[name=question]").value;
  const rows = page.scores[question].filter((row) => row[4] !== null)
    .map(([row, value, low, high, state]) => ({ row, value, low, high, state: Math.max(state, 1) }));
  const stroke = (style) => (row) => style.get(row.row)?.stroke ?? "var(--grey)";
  const ink = (style) => (row) => style.get(row.row)?.text ?? "var(--soft)";
  const marks = (points, style) => [
    Plot.ruleX(points, { x: "state", y1: "low", y2: "high", stroke: stroke(style), strokeOpacity: 0.6 }),
    Plot.dot(points, { x: "state", y: "value", r: 5, fill: stroke(style) }),
    Plot.text(points, { x: "state", y: "value", text: "row", dy: -11, fill: ink(style), stroke: "var(--paper)", strokeWidth: 4 }),
    Plot.tip(points, Plot.pointer({ x: "state", y: "value", maxRadius: 500, fill: "var(--paper)", stroke: "var(--line)",
      title: (row) => `${row.row}\n${short(row.value)} [${short(row.low)}, ${short(row.high)}]\n${bytes(row.state)} of state` })),
  ];
  draw("#state-chart", `${table.questions[question]} against bytes of state`, rows, marks, {
    x: { type: "log", label: "bytes of state", tickFormat: bytes, ticks: [1, 32, 1024, 32768, 1048576] },
    y: { label: table.questions[question], grid: true, nice: true },
  });
}

function curveChart() {
  const question = $("[name=curve]").value;
  const rows = Object.entries(page.curves[question] ?? {}).flatMap(([row, points]) =>
    points.map(([step, loss]) => ({ row, step, loss })));
  const title = (point) => `${point.row}\nstep ${comma(point.step)}: loss ${short(point.loss)}`;
  draw("#curve-chart", `Training loss of ${table.questions[question]} against steps`, rows, lines("step", "loss", title), {
    x: { label: "steps" }, y: { label: "training loss", grid: true, nice: true },
  });
}

// The curve of a field of the matrix, in the note at its pointer.
function addCurve({ currentTarget: field }) {
  const points = page.curves[field.dataset.question]?.[field.parentElement.dataset.row];
  const note = $("small", field);
  if (!points || $("svg", note)) return;
  note.append(Plot.plot({
    width: 220, height: 70, margin: 6, axis: null, ariaLabel: "training loss against steps",
    marks: [Plot.line(points, { stroke: "currentColor" })],
  }));
}

const drawAll = () => [costChart, stateChart, curveChart].forEach((chart) => chart());

function refresh() {
  chosen = showAnswer() ?? chosen;
  [filterMatrix, sortMatrix, drawAll].forEach((part) => part());
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function start() {
  choices = await unpacked(page.choices);
  $$(".needs-js").forEach((part) => { part.hidden = false; });
  makeSortable();
  defaults = state().toString();
  restore();
  refresh();
  for (const form of $$("form.needs-js")) {
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => { refresh(); save(); });
  }
  addEventListener("hashchange", () => { if (location.hash.includes("=")) { restore(); refresh(); } });
  for (const field of $$("td[data-question]")) {
    for (const event of ["pointerenter", "focus"]) field.addEventListener(event, addCurve);
  }
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
  document.body.dataset.ready = true;
}

start();
