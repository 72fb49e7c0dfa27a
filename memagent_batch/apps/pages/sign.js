// What a person decides of an answer: accept, correct or reject it, or withdraw a sign-off that was taken in. This
// browser keeps it until signed.csv is saved, over nights: by the site's place, and for each answer by its hash. Follows
// browser.js.
// All text goes in as text (textContent): nothing of a document, a question or an answer is ever parsed as HTML.

const SITE = JSON.parse(document.getElementById("site").textContent);
const KEPT = `memagent-decisions:${new URL(SITE.root, location.href).href}`;
const DECISIONS = { a: "accept", c: "correct", r: "reject" };  // by their keys
const WITHDRAW = "withdraw";
const STEPS = { n: 1, p: -1 };
const WITHOUT_ANSWER = new Set(["failed", "not read"]);  // outcomes that nobody can accept, as `has_answer` of sign_offs.py
const CORRECTIONS = {  // by the type of the question: how a correction is written, and what asks for it
  number: [/^-?(0|[1-9]\d*)(\.\d+)?$/, "a number such as 12.5"],
  date: [/^\d{4}-\d\d-\d\d$/, "a date such as 2026-01-31"],
  bool: [/^(yes|no)$/i, "yes or no"],
};

const byId = (id) => document.getElementById(id);
const say = (words) => { byId("state").textContent = words; };
const readingKey = (doc, question, sample) => JSON.stringify([doc, question, String(sample)]);
const keyOfRow = (row) => readingKey(row.doc, row.question, row.sample);
const keyOfDecision = (one) => readingKey(one.document_id, one.question_id, one.sample);
let decided = {};  // hash of a reading -> its row of signed.csv
let outdated = new Map();  // open reading -> decision on an answer that it does not have any more
const rowsByHash = new Map(), rowsByKey = new Map();  // the readings of this page
let onDecided = () => {};

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("aria-") || ["scope", "dir", "role"].includes(key)) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/* ---- the controls of one answer ---- */

function decisionControls(row) {
  const field = (name, label) => {
    const input = element("input", { type: "text", placeholder: label, "aria-label": label });
    input.addEventListener("input", () => {
      decided[row.hash][name] = input.value;
      decided[row.hash].signed_at = new Date().toISOString();
      delete decided[row.hash].saved;
      keepDecisions();
    });
    return input;
  };
  const correction = field("correction", "the right answer"), comment = field("comment", "comment");
  const press = (button, value) => {
    button.addEventListener("click", () => {
      decide(row, value());
      drawDecisions();
      if (!correction.hidden) correction.focus();
    });
    return button;
  };
  const buttons = (row.signed ? [["", WITHDRAW]] : Object.entries(DECISIONS)).map(([key, decision]) => press(
    element("button", { type: "button", value: decision, ...(key && { "aria-keyshortcuts": key }) },
      `${decision[0].toUpperCase()}${decision.slice(1)} `, key ? element("kbd", {}, key) : null), () => decision));
  const back = press(element("button", { type: "button", className: "back" }, "Take back"), () => decided[row.hash].decision);
  const before = element("small", { className: "why" });
  const unread = !row.signed && WITHOUT_ANSWER.has(row.outcome)
    ? element("small", { className: "muted" }, "No answer was read, so there is none to accept.") : null;
  const made = element("div", { className: row.signed ? "decision withdrawal" : "decision", role: "group",
    "aria-label": "Your decision", tabIndex: -1 }, ...buttons, back, correction, comment, unread, before);
  made.draw = () => {
    const said = decided[row.hash], old = outdated.get(keyOfRow(row));
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(said?.decision === button.value));
      button.disabled = unread !== null && button.value === "accept";
    }
    back.hidden = comment.hidden = !said;
    correction.hidden = said?.decision !== "correct";
    comment.value = said?.comment ?? "";
    correction.value = said?.correction ?? "";
    before.hidden = !old;
    before.textContent = old ? `Open again: you decided (${old.decision}${old.correction ? `: ${old.correction}` : ""}) before its text or answer changed.` : "";
  };
  made.draw();
  return made;
}

function decide(row, decision) {
  const before = decided[row.hash];
  if (outdated.has(keyOfRow(row))) delete decided[outdated.get(keyOfRow(row)).reading_hash];
  if (before?.decision === decision) delete decided[row.hash];  // pressed again: taken back
  else {
    decided[row.hash] = { ...before, ...idsOf(row), reading_hash: row.hash, decision, signed_at: new Date().toISOString() };
    delete decided[row.hash].saved;
  }
  keepDecisions();
}

// What signed.csv says of a reading of the page; the document may have got another name since it was decided.
const idsOf = (row) => (row
  ? { document_id: row.doc, question_id: row.question, sample: String(row.sample), type: row.type, unit: row.unit } : {});

// The reading that was decided, by its own ids; by its content if the document has got another name since then.
function rowOf(one) {
  const row = rowsByKey.get(keyOfDecision(one));
  return row?.hash === one.reading_hash ? row : rowsByHash.get(one.reading_hash);
}

function keepDecisions() {
  keepValue(KEPT, JSON.stringify(decided));
  showDecisions();
}

function showDecisions() {
  const others = Object.values(decided).filter((one) => one.decision !== WITHDRAW && !rowsByHash.has(one.reading_hash));
  outdated = new Map(others.map((one) => [keyOfDecision(one), one]).filter(([key]) => {
    const row = rowsByKey.get(key);
    return row && !row.signed && !(row.hash in decided);
  }));
  const number = Object.keys(decided).length;
  byId("save-signed").textContent = `Save signed.csv (${number.toLocaleString("en")})`;
  byId("save-signed").disabled = !number;
  onDecided();
}

const drawDecisions = () => document.querySelectorAll(".decision").forEach((group) => group.draw());

// Takes the readings of the page, which decisions are looked up in.
function takeReadings(readings) {
  for (const row of readings) {
    rowsByHash.set(row.hash, row);
    rowsByKey.set(keyOfRow(row), row);
  }
  showDecisions();
}

function recallDecisions() {
  decided = JSON.parse(readKept(KEPT) ?? "{}");
  takeReadings([]);
  drawDecisions();
}

// Forgets what was saved and is not asked for any more: the answer is signed off, or there is another one; and
// withdrawals of what is not signed off any more.
function forgetSaved() {
  const isAsked = (one) => {
    const row = rowsByHash.get(one.reading_hash);
    return row && Boolean(row.signed) === (one.decision === WITHDRAW);
  };
  decided = Object.fromEntries(Object.entries(decided)
    .filter(([, one]) => isAsked(one) || (!one.saved && one.decision !== WITHDRAW)));
  keepDecisions();
}

/* ---- signed.csv ---- */

function isMiswritten({ decision, correction, type, unit }) {
  if (decision !== "correct" || !(type in CORRECTIONS) || /^not stated\.?$/i.test(correction)) return false;
  const written = unit && correction.endsWith(unit) ? correction.slice(0, -unit.length).trim() : correction;
  return !CORRECTIONS[type][0].test(written);
}

function saveSigned() {
  const signed_by = byId("signer").value.trim();
  if (!signed_by) {
    say("Write your name first: sign-offs say who signed.");
    byId("signer").focus();
    return;
  }
  const all = Object.values(decided).map((each) => ({ ...each, ...idsOf(rowOf(each)), signed_by,
    correction: each.decision === "correct" ? (each.correction ?? "").trim() : "" }));
  const open = all.filter((each) => (each.decision === "correct" && !each.correction) || isMiswritten(each));
  const here = open.find((each) => rowsByHash.has(each.reading_hash));
  if (here) {
    say(here.correction
      ? `The right answer to ${here.document_id}, ${here.question_id} must be ${CORRECTIONS[here.type][1]}, or: not stated.`
      : `Write the right answer first: ${here.document_id}, ${here.question_id}.`);
    return;
  }
  const whole = all.filter((each) => !open.includes(each));
  saveFile("signed.csv", [SITE.columns.join(","),
    ...whole.map((each) => SITE.columns.map((name) => sheetCell(each[name] ?? "")).join(","))]);
  for (const { reading_hash } of whole) decided[reading_hash].saved = true;
  keepDecisions();
  const left = open.length ? ` It lacks what has no right answer yet: ${open.map((each) => `${each.document_id}, ${each.question_id}`).join("; ")}.` : "";
  say(`signed.csv is saved where downloads go. It counts once whoever runs the scan has taken it in, with: memagent review sign.${left}`);
}

/* ---- keys: they decide only the answer that is marked ---- */

const groups = () => [...document.querySelectorAll(".decision:not(.withdrawal)")];
const isOpen = (group) => !group.querySelector("[aria-pressed=true]");
const markedGroup = () => document.activeElement.closest(".decision");

function mark(group) {
  if (!group) return;
  group.focus({ preventScroll: true });
  group.closest("section, tr").scrollIntoView({ block: group.closest("section") ? "start" : "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const marked = markedGroup(), all = groups();
  const first = document.querySelector(":target .decision:not(.withdrawal)") ?? all.find(isOpen) ?? all[0];
  if (event.target.matches("input:not([type=radio]), select")) {
    if (event.key === "Escape" || (event.key === "Enter" && marked)) mark(marked ?? first);
    return;
  }
  if (!(event.key in DECISIONS) && !(event.key in STEPS)) return;
  event.preventDefault();
  if (!marked) mark(first);
  else if (event.key in STEPS) mark(all[all.indexOf(marked) + STEPS[event.key]]);
  else {
    marked.querySelector(`[aria-keyshortcuts=${event.key}]`)?.click();
    if (event.key !== "c" && !isOpen(marked)) mark(all.slice(all.indexOf(marked) + 1).find(isOpen));
  }
});

byId("signing").hidden = false;
hasUnsaved = () => Object.values(decided).some((one) => !one.saved);
keepValue("memagent-signer", readKept("memagent-signer") ?? "");  // shows whether the browser keeps anything
byId("signer").value = readKept("memagent-signer");
byId("signer").addEventListener("change", () => keepValue("memagent-signer", byId("signer").value.trim()));
byId("save-signed").addEventListener("click", saveSigned);
window.addEventListener("storage", recallDecisions);  // another page decided
window.addEventListener("pageshow", recallDecisions);
recallDecisions();
takeReadings(SITE.readings ?? []);
for (const each of document.querySelectorAll("[data-decide]")) {
  each.replaceWith(decisionControls(SITE.readings[each.dataset.decide]));
}
