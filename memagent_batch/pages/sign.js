// What a person decides of an answer: accept, correct or reject it. This browser keeps it until signed.csv is saved.
// All text goes in as text (textContent): nothing of a document, a question or an answer is ever parsed as HTML.
"use strict";

const SITE = JSON.parse(document.getElementById("site").textContent);
const KEPT = `memagent-decisions:${SITE.run}`;
const DECISIONS = { a: "accept", c: "correct", r: "reject" };  // by their keys
const STEPS = { n: 1, p: -1 };
const CORRECTIONS = {  // by the type of the question: how a correction is written, and what asks for it
  number: [/^-?(0|[1-9]\d*)(\.\d+)?$/, "a number such as 12.5"],
  date: [/^\d{4}-\d\d-\d\d$/, "a date such as 2026-01-31"],
  bool: [/^(yes|no)$/i, "yes or no"],
};
const SAVING_MS = 10000;  // until the saved file may be dropped

const byId = (id) => document.getElementById(id);
const say = (words) => { byId("state").textContent = words; };
let decided = {};  // hash of a reading -> its row of signed.csv
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
    input.addEventListener("input", () => { decided[row.hash][name] = input.value; keepDecisions(); });
    return input;
  };
  const correction = field("correction", "the right answer"), comment = field("comment", "comment");
  const buttons = Object.entries(DECISIONS).map(([key, decision]) => {
    const button = element("button", { type: "button", value: decision, "aria-keyshortcuts": key },
      `${decision[0].toUpperCase()}${decision.slice(1)} `, element("kbd", {}, key));
    button.addEventListener("click", () => {
      decide(row, decision);
      made.draw();
      if (!correction.hidden) correction.focus();
    });
    return button;
  });
  const made = element("div", { className: "decision", role: "group", "aria-label": "Your decision", tabIndex: -1 },
    ...buttons, correction, comment);
  made.draw = () => {
    const said = decided[row.hash];
    for (const button of buttons) button.setAttribute("aria-pressed", String(said?.decision === button.value));
    comment.hidden = !said;
    correction.hidden = said?.decision !== "correct";
    comment.value = said?.comment ?? "";
    correction.value = said?.correction ?? "";
  };
  made.draw();
  return made;
}

function decide(row, decision) {
  const before = decided[row.hash];
  if (before?.decision === decision) delete decided[row.hash];  // pressed again: taken back
  else {
    decided[row.hash] = { ...before, document_id: row.doc, question_id: row.question, sample: String(row.sample),
      type: row.type, unit: row.unit, reading_hash: row.hash, decision, signed_at: new Date().toISOString() };
  }
  keepDecisions();
}

function keepDecisions() {
  try {
    localStorage.setItem(KEPT, JSON.stringify(decided));
  } catch (error) {
    say("This browser can't keep decisions: save them before you leave the page.");
  }
  showDecisions();
}

function showDecisions() {
  const number = Object.keys(decided).length;
  byId("save-signed").textContent = `Save signed.csv (${number.toLocaleString("en")})`;
  byId("save-signed").disabled = !number;
  onDecided();
}

function recallDecisions() {
  decided = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
  showDecisions();
  for (const group of groups()) group.draw();
}

/* ---- signed.csv ---- */

// A cell that a spreadsheet would run as a formula is text: it gets a mark in front. As in label.js.
function sheetCell(value) {
  const isFormula = /^(?:\s*[=+\-@＝＋－＠]|[\t\r\n'])/.test(value) && !/^-?[0-9]+(\.[0-9]+)?$/.test(value);
  const words = isFormula ? `'${value}` : value;
  return /[",;\r\n]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
}

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
  const all = Object.values(decided).map((each) => ({ ...each, signed_by,
    correction: each.decision === "correct" ? (each.correction ?? "").trim() : "" }));
  const open = all.find((each) => each.decision === "correct" && !each.correction);
  if (open) {
    say(`Write the right answer first: ${open.document_id}, ${open.question_id}.`);
    return;
  }
  const wrong = all.find(isMiswritten);
  if (wrong) {
    say(`The right answer to ${wrong.document_id}, ${wrong.question_id} must be ${CORRECTIONS[wrong.type][1]}, or: not stated.`);
    return;
  }
  const lines = all.map((each) => SITE.columns.map((name) => sheetCell(each[name] ?? "")).join(","));
  const text = `\ufeff${[SITE.columns.join(","), ...lines].join("\r\n")}\r\n`;
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" })), download: "signed.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), SAVING_MS);
  say("signed.csv is saved where downloads go. It counts once whoever runs the scan has taken it in, with: memagent review sign");
}

/* ---- keys: they decide only the answer that is marked ---- */

const groups = () => [...document.querySelectorAll(".decision")];
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
  const first = document.querySelector(":target .decision") ?? all.find(isOpen) ?? all[0];
  if (event.target.matches("input:not([type=radio]), select")) {
    if (event.key === "Escape" || (event.key === "Enter" && marked)) mark(marked ?? first);
    return;
  }
  if (!(event.key in DECISIONS) && !(event.key in STEPS)) return;
  event.preventDefault();
  if (!marked) mark(first);
  else if (event.key in STEPS) mark(all[all.indexOf(marked) + STEPS[event.key]]);
  else {
    marked.querySelector(`[aria-keyshortcuts=${event.key}]`).click();
    if (event.key !== "c" && !isOpen(marked)) mark(all.slice(all.indexOf(marked) + 1).find(isOpen));
  }
});

byId("signing").hidden = false;
byId("signer").value = localStorage.getItem("memagent-signer") ?? "";
byId("signer").addEventListener("change", () => localStorage.setItem("memagent-signer", byId("signer").value.trim()));
byId("save-signed").addEventListener("click", saveSigned);
window.addEventListener("storage", recallDecisions);  // another page decided
window.addEventListener("pageshow", recallDecisions);
recallDecisions();
for (const each of document.querySelectorAll("[data-decide]")) {
  each.replaceWith(decisionControls(SITE.readings[each.dataset.decide]));
}
