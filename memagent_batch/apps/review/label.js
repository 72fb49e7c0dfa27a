// Labels by keyboard. The browser keeps each before the answer of the scan is asked for. Follows browser.js.
const review = JSON.parse(document.getElementById("review").textContent);
const at = (id) => document.getElementById(id);
const BLOCK = 20000; // characters of a block of text, about: what is out of sight is not laid out
const MAX_FOUND = 2000; // matches that are marked
const prefix = `memagent-review:${review.review_id}:${review.role}`;
const labels = [...review.choices, "unclear"];
const keys = new Map(labels.map((label, place) => [String(place + 1), label]).filter((_, place) => place < 9));
for (const label of labels) if (["yes", "no", "unclear"].includes(label)) keys.set(label[0], label);

let place = 0, chosen = null, text = "", blocks = [], matches = [], match = -1, receive = null, isShown = false, isSaved = true;

// What one document's entry holds: records of labels (the last one stands), and a comment.
const kept = (item) => JSON.parse(readKept(`${prefix}:${item.name}`) ?? '{"records":[],"comment":""}');
const keep = (item, entry) => {
  isSaved = false;
  keepValue(`${prefix}:${item.name}`, JSON.stringify(entry));
};
const seen = (item) => `memagent-seen:${item.document_hash}:${item.question_hash}`;
const reviewer = () => readKept(`${prefix}:reviewer`) ?? "";
const item = () => review.items[place];
const last = (entry) => entry.records[entry.records.length - 1];
const say = (words, isProblem = false) => {
  at("state").textContent = words;
  at("state").className = isProblem ? "problem" : "";
};

function load(folder, take) {
  const frame = document.createElement("iframe");
  frame.src = `${folder}/${item().name}.html`;
  window.removeEventListener("message", receive); // what the reader has left comes too late
  receive = (event) => {
    if (event.source !== frame.contentWindow) return;
    window.removeEventListener("message", receive);
    frame.remove();
    take(event.data);
  };
  window.addEventListener("message", receive);
  at("frames").replaceChildren(frame);
}

function show(number) {
  place = Math.min(Math.max(number, 0), review.items.length - 1);
  chosen = null;
  isShown = false;
  keepValue(`${prefix}:place`, String(place));
  const entry = kept(item());
  at("place").textContent = `${place + 1} of ${review.items.length}`;
  at("document").textContent = item().document_id;
  at("question").textContent = item().question;
  drawSource();
  at("comment").value = entry.comment;
  at("answer").hidden = true;
  at("words").value = "";
  say("");
  drawChoices();
  drawText("");
  load("documents", (part) => {
    drawText(part.text);
    isShown = true;
    if (last(entry)) reveal();
  });
}

function drawSource() {
  const { source, source_unread } = item();
  const isLink = /^(https?|file):/i.test(source ?? "");
  const name = Object.assign(document.createElement(isLink ? "a" : "bdi"), { textContent: source ?? "" });
  if (isLink) Object.assign(name, { href: source, target: "_blank", rel: "noreferrer" });
  at("source").replaceChildren("Source: ", name);
  at("source").hidden = !source;
  at("unread").textContent = `The text lacks a part of its source, so label it from the source. Not read: ${source_unread}`;
  at("unread").hidden = !source_unread;
}

function drawChoices() {
  const saved = last(kept(item()))?.value;
  const buttons = labels.map((label) => {
    const button = document.createElement("button");
    const key = [...keys].filter(([, of]) => of === label).map(([name]) => name).pop();
    button.type = "button";
    button.textContent = `${label} `;
    if (key) button.append(Object.assign(document.createElement("kbd"), { textContent: key }));
    button.setAttribute("aria-pressed", String(label === chosen));
    button.classList.toggle("saved", label === saved);
    button.addEventListener("click", () => choose(label));
    return button;
  });
  at("choices").replaceChildren(...buttons);
  const left = review.items.filter((each) => !last(kept(each))).length;
  at("done").value = review.items.length - left;
  at("left").textContent = left ? `${left} left.` : "All are labelled: save labels.csv.";
}

function choose(label) {
  if (!isShown) return say("Wait until the document is there.");
  chosen = label;
  drawChoices();
  say(last(kept(item())) ? "Enter corrects your label. The correction does not count as blind." : "Enter saves.");
}

function save() {
  const entry = kept(item());
  const blind = !readKept(seen(item())); // also where another page of this output has shown the answer
  entry.records.push({ value: chosen, at: new Date().toISOString(), blind });
  keep(item(), entry);
  chosen = null;
  drawChoices();
  say("Saved. Enter goes on.");
  reveal();
}

function reveal() {
  keepValue(seen(item()), "shown");
  load("answers", (part) => {
    at("value").textContent = part.value;
    at("given").textContent = part.answer === part.value ? "" : part.answer;
    at("answer").hidden = false;
    drawEvidence(part.evidence);
  });
}

function drawEvidence(sentences) {
  const rows = sentences.map((sentence) => {
    const row = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = sentence;
    button.addEventListener("click", () => search(sentence));
    row.append(button);
    return row;
  });
  at("evidence").replaceChildren(...rows);
}

function drawText(words) {
  text = words;
  blocks = [];
  const parts = [];
  for (let start = 0; start < text.length; ) {
    const line = text.indexOf("\n", start + BLOCK);
    const end = line < 0 || line > start + 5 * BLOCK ? Math.min(text.length, start + 5 * BLOCK) : line + 1;
    const part = document.createElement("div");
    part.textContent = text.slice(start, end);
    blocks.push({ start, node: part.firstChild });
    parts.push(part);
    start = end;
  }
  at("text").replaceChildren(...parts);
  find("");
  window.scrollTo(0, 0);
}

function search(words) {
  at("words").value = words;
  find(words);
}

function find(words) {
  matches = [];
  match = -1;
  if (words) {
    const pattern = new RegExp(words.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&").replace(/\s+/g, "\\s+"), "giu");
    for (const found of text.matchAll(pattern)) {
      matches.push(rangeOf(found.index, found.index + found[0].length));
      if (matches.length === MAX_FOUND) break;
    }
  }
  CSS.highlights?.set("found", new Highlight(...matches));
  CSS.highlights?.delete("here");
  at("found").textContent = words && !matches.length ? "nowhere" : "";
  step(1);
}

function step(by) {
  if (!matches.length) return;
  match = (match + by + matches.length) % matches.length;
  CSS.highlights?.set("here", new Highlight(matches[match]));
  matches[match].startContainer.parentElement.scrollIntoView({ block: "nearest" });
  const box = matches[match].getBoundingClientRect();
  window.scrollBy(0, box.top - window.innerHeight * 0.7);
  const most = matches.length === MAX_FOUND ? "+" : "";
  at("found").textContent = `${match + 1} of ${matches.length}${most}; Enter: next`;
}

function rangeOf(start, end) {
  const range = document.createRange();
  for (const [name, offset] of [["setStart", start], ["setEnd", end]]) {
    let low = 0, high = blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (blocks[middle].start <= offset) low = middle; else high = middle - 1;
    }
    range[name](blocks[low].node, offset - blocks[low].start);
  }
  return range;
}

function sheet() {
  const lines = [review.columns.join(",")];
  for (const each of review.items) {
    const entry = kept(each);
    const common = {
      document_id: each.document_id, question: each.question, decision: review.instruction, reviewer: reviewer(), review_id: review.review_id,
      document_hash: each.document_hash, question_hash: each.question_hash,
      source: each.source, source_unread: each.source_unread,
    };
    const rows = entry.records.map((record, number) => ({
      ...common, label: record.value, labelled_at: record.at, blind: String(record.blind),
      comment: number === entry.records.length - 1 ? entry.comment : "",
    }));
    for (const row of rows) lines.push(review.columns.map((name) => sheetCell(row[name] ?? "")).join(","));
  }
  return lines;
}

function saveSheet() {
  saveFile(`labels-${review.review_id}-${review.role}.csv`, sheet());
  isSaved = true;
  say("labels.csv is saved where downloads go.");
}

const COMMANDS = {
  ArrowLeft: () => show(place - 1),
  ArrowRight: () => show(place + 1),
  "/": () => at("words").focus(),
  c: () => at("comment").focus(),
  e: saveSheet,
  Enter: () => {
    if (chosen) save();
    else if (last(kept(item()))) show(place + 1);
    else say("Choose a label first.");
  },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || at("work").hidden) return;
  if (event.key === "Escape") return document.activeElement.blur();
  if (event.target.tagName === "INPUT") {
    if (event.target === at("comment") && event.key === "Enter") event.target.blur();
    return;
  }
  if (event.key === "Enter" && event.target.tagName === "BUTTON" && event.target.closest("footer, #evidence")) return;
  const run = keys.has(event.key) ? () => choose(keys.get(event.key)) : COMMANDS[event.key];
  if (!run) return;
  event.preventDefault();
  run();
});
at("comment").addEventListener("input", () => keep(item(), { ...kept(item()), comment: at("comment").value }));
at("find").addEventListener("submit", (event) => { event.preventDefault(); step(1); });
at("words").addEventListener("input", () => find(at("words").value));
at("back").addEventListener("click", () => show(place - 1));
at("next").addEventListener("click", () => show(place + 1));
at("export").addEventListener("click", saveSheet);
at("begin").addEventListener("submit", (event) => {
  event.preventDefault();
  keepValue(`${prefix}:reviewer`, at("reviewer").value.trim());
  begin();
});

function begin() {
  at("begin").hidden = true;
  at("work").hidden = false;
  const first = review.items.findIndex((each) => !last(kept(each)));
  const before = readKept(`${prefix}:place`);
  document.activeElement?.blur();
  show(before === null ? Math.max(first, 0) : Number(before));
}

hasUnsaved = () => !isSaved;
if (reviewer()) begin();
else { at("begin").hidden = false; at("reviewer").focus(); }
