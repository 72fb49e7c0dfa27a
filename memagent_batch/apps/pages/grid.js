// The table of all answers: rows come from frames of further files, are filtered and sorted here, and drawn a page at a
// time. Follows sign.js.
const GRID_ROWS = 50;      // documents on a page of the grid
const LIST_ROWS = 100;     // answers on a page of the list
const GRID_QUESTIONS = 6;  // columns of the grid at once
const LOADS_AT_ONCE = 4;   // files of rows
const WAIT_MS = 10000;     // for the rows of a file that has loaded
const KEEPS_GRID = 0.5;    // share of filled cells from which the grid is shown first

const CONTROLS = ["search", "look", "question", "outcome", "confidence", "support", "change"];
const LOOKS = { "needs a look": (row) => whyText(row) !== null && !(row.hash in decided), "signed off": (row) => row.signed !== "" || row.hash in decided };
const order = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

const NARROW = matchMedia("(max-width: 42rem)");  // as in pages.css
const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

const rows = [];
const asked = new Set();      // document and question of every row
const questions = new Map();  // id -> text
let state = { view: "", sort: "", down: false, page: 0, column: 0 };
let shown = [];

/* ---- rows ---- */

function take(file) {
  for (const [id, text] of file.questions) if (!questions.has(id)) questions.set(id, text);
  for (const [doc, question, sample, status, outcome, value, number, answer, confidence, support, change, href, before, look, signed, hash, sentence, place] of file.rows) {
    const [id, text, type, unit] = file.questions[question];
    asked.add(`${doc}\n${id}`);
    rows.push({ doc, question: id, text, type, unit, sample, status, outcome, value, number, answer, confidence, support, change,
      href, before, look, why: SITE.needs[look] ?? null, signed, hash, sentence, place, folded: `${doc}\n${id}\n${text}\n${value}\n${answer}`.toLowerCase() });
  }
}

function load(path) {
  return new Promise((resolve) => {
    const frame = document.createElement("iframe");
    let timer = 0;
    const end = (ok) => {
      clearTimeout(timer);
      window.removeEventListener("message", hear);
      frame.remove();
      resolve(ok ? null : path);
    };
    const hear = (event) => {
      if (event.source !== frame.contentWindow) return;
      take(event.data);
      end(true);
    };
    window.addEventListener("message", hear);
    frame.addEventListener("load", () => { timer = setTimeout(() => end(false), WAIT_MS); });
    frame.src = path;
    byId("frames").append(frame);
  });
}

async function loadAll() {
  const left = [...SITE.files];
  const missing = [];
  const work = async () => {
    while (left.length) {
      const failed = await load(left.shift());
      if (failed) missing.push(failed);
      say(`Loading … ${rows.length.toLocaleString("en")} of ${counted(SITE.num_readings, "answer")}`);
    }
  };
  await Promise.all(Array.from({ length: LOADS_AT_ONCE }, work));
  return missing;
}

/* ---- what is shown ---- */

function matches() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [look, question, outcome, support, change] = CONTROLS.filter((id) => id !== "search" && id !== "confidence").map((id) => byId(id).value);
  const below = Number(byId("confidence").value) || 0;
  return rows.filter((row) =>
    (!look || LOOKS[look](row)) && (!question || row.question === question) && (!outcome || row.outcome === outcome) &&
    (!support || row.support === support) && (!change || row.change === change) &&
    (!below || (row.confidence !== null && row.confidence < below)) &&
    words.every((word) => row.folded.includes(word)));
}

const RANKS = { supported: 3, partly: 2, "not enough": 1, contradicted: 0 };
const KEYS = {
  look: (row) => row.look,
  document: (row) => row.doc,
  question: (row) => row.question,
  answer: (row) => row.number ?? row.value,
  outcome: (row) => row.outcome,
  confidence: (row) => row.confidence,
  support: (row) => (row.support === null ? null : RANKS[row.support]),
  change: (row) => ({ changed: "0", new: "1" }[row.change] ?? "2"),
};

function compare(left, right, down) {
  if (left === null || right === null) return (left === null) - (right === null);  // what has none comes last
  if (typeof left !== typeof right) return (typeof right === "number") - (typeof left === "number");  // numbers come first
  const way = typeof left === "number" ? left - right : order.compare(left, right);
  return down ? -way : way;
}

function sorted(found, key) {
  const keyed = found.map((row) => [key(row), row]);
  keyed.sort(([left, one], [right, other]) => compare(left, right, state.down)
    || order.compare(one.doc, other.doc) || order.compare(one.question, other.question) || one.sample - other.sample);
  return keyed.map(([, row]) => row);
}

function asDocuments(found) {
  const documents = new Map();
  for (const row of found) {
    let cells = documents.get(row.doc);
    if (!cells) documents.set(row.doc, cells = new Map());
    if (!cells.has(row.question)) cells.set(row.question, []);
    cells.get(row.question).push(row);
  }
  const question = state.sort.startsWith("q:") ? state.sort.slice(2) : null;
  const key = ([doc, cells]) => {
    if (state.sort === "document") return doc;
    if (question === null) return Math.min(...[...cells.values()].flat().map(KEYS.look));
    const row = cells.get(question)?.[0];
    return row ? KEYS.answer(row) : null;
  };
  return [...documents].sort((one, other) => compare(key(one), key(other), state.down) || order.compare(one[0], other[0]));
}

/* ---- drawing ---- */

function bar(share) {
  const made = element("span", { className: "meter", "aria-hidden": "true" });
  const fill = element("i");
  fill.style.width = `${100 * share}%`;
  made.append(fill);
  return made;
}

const perCent = (share) => {  // as `percent` of domain/texts/shares.py
  if (share === 0 || share === 1) return `${100 * share} %`;
  const inside = Math.min(Math.max(share, 0.0001), 0.9999);
  return `${(100 * inside).toFixed(inside < 0.01 || inside > 0.99 ? 2 : 1)} %`;
};
const confidenceOf = (row) => (row.confidence === null ? null
  : element("span", { className: "confidence" }, bar(row.confidence), perCent(row.confidence)));
const chip = (kind, text) => element("span", { className: `chip ${kind}` }, text);
const supportOf = (row) => (row.support === null ? null : chip(`support-${row.support.split(" ")[0]}`, row.support));
const changeOf = (row) => (row.change === "changed" || row.change === "new" ? element("span", {}, chip("change", row.change),
  row.before ? element("small", { className: "muted" }, "before: ", element("bdi", {}, row.before)) : null) : null);

function answerOf(row) {
  const text = element("bdi", {}, row.value);
  return element("a", { href: row.href, className: `answer outcome-${row.outcome.split(" ")[0]}`, title: row.answer || row.value }, text);
}

const sentenceOf = (row) => (row.sentence === "" ? null : element("span", { className: "sentence" },
  element("q", { dir: "auto" }, row.sentence), " ", element("span", { className: "muted" }, element("bdi", {}, row.place))));

const whyOf = (row) => (row.why === null ? null : element("small", { className: "why" }, row.why));
const whyText = (row) => row.why ?? outdated.get(keyOfRow(row))?.decision ?? null;  // why a person has to look at it

function cell(found, doc, id) {
  const made = element("td");
  if (!found && asked.has(`${doc}\n${id}`)) made.append(element("small", {}, "does not fit the filter"));
  for (const row of found ?? []) {
    const signs = [confidenceOf(row), supportOf(row), changeOf(row)].filter(Boolean);
    const sample = row.sample ? element("span", { className: "muted" }, ` sample ${row.sample}`) : null;
    made.append(element("div", { className: "cell" }, answerOf(row), sample,
      signs.length ? element("div", { className: "signs" }, ...signs) : null, whyOf(row), signOf(row)));
  }
  return made;
}

const signOf = (row) => {
  if (row.signed) {
    return element("div", {}, element("small", { className: "signed" }, "signed off: ", element("bdi", {}, row.signed)),
      state.view === "grid" ? null : decisionControls(row));
  }
  return whyText(row) === null && !(row.hash in decided) && state.view === "grid" ? null : decisionControls(row);
};

onDecided = () => {
  for (const option of [...byId("look").options].slice(1)) {
    option.textContent = `${option.value} (${rows.filter(LOOKS[option.value]).length.toLocaleString("en")})`;
  }
};

function heading(name, text, title = "") {
  const isSorted = state.sort === name;
  const button = element("button", { type: "button", title: title || text }, element("bdi", {}, text),
    element("span", { className: "arrow", "aria-hidden": "true" }, isSorted ? (state.down ? " ▼" : " ▲") : ""));
  button.addEventListener("click", () => {
    state = { ...state, down: isSorted && !state.down, sort: name, page: 0 };
    update();
    byId("table").tHead.querySelectorAll("button")[[...KEYS_SHOWN].indexOf(name)]?.focus();
  });
  return element("th", { scope: "col", "aria-sort": isSorted ? (state.down ? "descending" : "ascending") : "none" }, button);
}

const TITLES = { change: "since last run", look: "decision" };
let KEYS_SHOWN = [];

function drawGrid(found) {
  const documents = asDocuments(found);
  const ids = byId("question").value ? [byId("question").value] : [...questions.keys()];
  state.column = Math.min(state.column, Math.max(0, ids.length - 1));
  state.column -= state.column % GRID_QUESTIONS;
  const columns = ids.slice(state.column, state.column + GRID_QUESTIONS);
  KEYS_SHOWN = ["document", ...columns.map((id) => `q:${id}`)];
  const head = element("tr", {}, heading("document", "document"), ...columns.map((id) => heading(`q:${id}`, questions.get(id), id)));
  const body = page(documents, GRID_ROWS).map(([doc, cells]) => element("tr", {},
    element("th", { scope: "row", className: "name" }, element("bdi", {}, doc)), ...columns.map((id) => cell(cells.get(id), doc, id))));
  byId("columns").hidden = ids.length <= GRID_QUESTIONS;
  byId("columns-shown").textContent =
    `questions ${state.column + 1} – ${state.column + columns.length} of ${ids.length.toLocaleString("en")}`;
  byId("columns-before").disabled = state.column === 0;
  byId("columns-after").disabled = state.column + GRID_QUESTIONS >= ids.length;
  draw(head, body, documents.length, GRID_ROWS, "documents");
}

function drawList(found) {
  const has = (name) => rows.some((row) => row[name] !== null);
  const columns = ["document", "question", "answer", "outcome", ...["confidence", "support", "change"].filter(has), "look"];
  KEYS_SHOWN = columns;
  const cells = {
    document: (row) => element("th", { scope: "row", className: "name" }, element("bdi", {}, row.doc)),
    question: (row) => element("td", { className: "text" }, element("bdi", { title: row.text }, row.question),
      element("small", {}, element("bdi", {}, row.text)), row.sample ? element("small", {}, `sample ${row.sample}`) : null),
    answer: (row) => element("td", { className: "text" }, answerOf(row), sentenceOf(row)),
    outcome: (row) => element("td", {}, row.outcome),
    confidence: (row) => element("td", {}, confidenceOf(row)),
    support: (row) => element("td", {}, supportOf(row)),
    change: (row) => element("td", {}, changeOf(row)),
    look: (row) => element("td", { className: "look" }, whyOf(row), signOf(row)),
  };
  const list = sorted(found, KEYS[state.sort] ?? KEYS.look);
  const head = element("tr", {}, ...columns.map((name) => heading(name, TITLES[name] ?? name)));
  const body = page(list, LIST_ROWS).map((row) => element("tr", {}, ...columns.map((name) => {
    const made = cells[name](row);
    made.dataset.label = TITLES[name] ?? name;
    return made;
  })));
  byId("columns").hidden = true;
  draw(head, body, list.length, LIST_ROWS, "answers");
}

function page(items, size) {
  state.page = Math.max(0, Math.min(state.page, Math.ceil(items.length / size) - 1));
  shown = items.slice(state.page * size, (state.page + 1) * size);
  return shown;
}

function draw(head, body, total, size, noun) {
  const table = byId("table");
  table.className = state.view === "list" ? "cards" : "";
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...body);
  const first = state.page * size;
  byId("shown").textContent = total
    ? `${noun} ${(first + 1).toLocaleString("en")} – ${Math.min(first + size, total).toLocaleString("en")} of ${total.toLocaleString("en")}` : "";
  byId("before").disabled = state.page === 0;
  byId("after").disabled = first + size >= total;
}

function update() {
  const found = matches();
  const documents = new Set(found.map((row) => row.doc)).size;
  (state.view === "grid" ? drawGrid : drawList)(found);
  const all = found.length === rows.length ? "" : ` of ${rows.length.toLocaleString("en")}`;
  byId("answers").hidden = !found.length;
  if (found.length) say(`${found.length.toLocaleString("en")}${all} ${rows.length === 1 ? "answer" : "answers"} in ${counted(documents, "document")}`);
  else if (!rows.length) say("This run asked for no answers.");
  else say(byId("look").value === "needs a look" ? "No answer fits: none of them needs a look." : "No answer fits: change the search or a filter.");
  remember();
}

/* ---- controls; what they say stands in the address, so that Back from a document finds it again ---- */

function remember() {
  const values = new URLSearchParams();
  for (const id of CONTROLS) if (byId(id).value) values.set(id, byId(id).value);
  for (const [name, value] of Object.entries(state)) if (value) values.set(name, String(Number(value) || value));
  history.replaceState(null, "", `#${values}`);
}

function recall() {
  const values = new URLSearchParams(location.hash.slice(1));
  for (const id of CONTROLS) {
    const control = byId(id);
    const value = values.get(id) ?? "";
    if (control.tagName !== "SELECT" || [...control.options].some((option) => option.value === value)) control.value = value;
  }
  const filled = rows.length / (new Set(rows.map((row) => row.doc)).size * questions.size || 1);
  const view = values.get("view") ?? (filled >= KEEPS_GRID && !NARROW.matches ? "grid" : "list");
  state = { view: view === "list" ? "list" : "grid", sort: values.get("sort") ?? "", down: values.has("down"),
    page: Number(values.get("page")) || 0, column: Number(values.get("column")) || 0 };
  document.querySelector(`input[name=view][value=${state.view}]`).checked = true;
}

function offer(id, values) {
  const control = byId(id);
  for (const value of values) control.append(element("option", { value }, value));
  control.closest("label").hidden = values.length < 2;
}

function counts(name) {
  return [...new Set(rows.map((row) => row[name]).filter((value) => value !== null))].sort(order.compare);
}

function listen() {
  const again = (changes) => () => { state = { ...state, page: 0, ...changes() }; update(); };
  let timer = 0;
  byId("search").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(again(() => ({})), 120); });
  for (const id of CONTROLS.slice(1)) byId(id).addEventListener("change", again(() => ({ column: 0 })));
  for (const input of document.querySelectorAll("input[name=view]")) {
    input.addEventListener("change", again(() => ({ view: input.value, sort: "", down: false })));
  }
  byId("reset").closest("form").addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", (event) => {
    event.preventDefault();
    for (const id of CONTROLS) byId(id).value = "";
    state = { ...state, sort: "", down: false, page: 0, column: 0 };
    update();
  });
  byId("filters").addEventListener("click", () => {
    const isOpen = byId("filters").closest("form").classList.toggle("open");
    byId("filters").setAttribute("aria-expanded", String(isOpen));
  });
  const step = (name, by) => () => { state[name] += by; update(); };
  byId("before").addEventListener("click", step("page", -1));
  byId("after").addEventListener("click", step("page", 1));
  byId("columns-before").addEventListener("click", step("column", -GRID_QUESTIONS));
  byId("columns-after").addEventListener("click", step("column", GRID_QUESTIONS));
}

async function begin() {
  const missing = await loadAll();
  offer("question", [...questions.keys()]);
  offer("outcome", counts("outcome"));
  offer("support", counts("support"));
  offer("change", counts("change"));
  for (const about of [byId("confidence").closest("label"), byId("about-confidence")]) {
    about.hidden = !rows.some((row) => row.confidence !== null);
  }
  takeReadings(rows);
  if (!missing.length) forgetSaved();
  recall();
  listen();
  update();
  if (missing.length) say(`Rows are missing: ${missing.join(", ")} can't be read. Make the page again.`);
  document.body.dataset.ready = "yes";
}

begin();
