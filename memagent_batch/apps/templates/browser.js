// What the scripts of all pages share; it comes before them.
"use strict";

// Values that the browser keeps for a page. If it keeps nothing (storage is blocked or full), they last as long as the
// page, which then shows its element #unkept and asks before it is left while `hasUnsaved` says so.
const unkept = new Map();
let hasUnsaved = () => false;

function readKept(key) {
  if (unkept.has(key)) return unkept.get(key);
  try {
    return localStorage.getItem(key);
  } catch (error) {
    return null;
  }
}

function keepValue(key, value) {
  try {
    localStorage.setItem(key, value);
    unkept.delete(key);
  } catch (error) {
    unkept.set(key, value);
  }
  document.getElementById("unkept").hidden = !unkept.size;
}

window.addEventListener("beforeunload", (event) => {
  if (unkept.size && hasUnsaved()) event.preventDefault();
});

// A cell of a CSV file, as `quoted` of review/sheet.py: a spreadsheet takes it for text, also one that splits at `;`
// or a tab.
const FORMULA_SIGNS = "=+-@＝＋－＠";

function sheetCell(value) {
  const isFormula = /^(?:[\s\x1c-\x1f\x85]*[=+\-@＝＋－＠]|[\t\r\n'])/.test(value) && !/^-?[0-9]+(\.[0-9]+)?$/.test(value);
  const marked = value.replace(/[\s\x1c-\x1f\x85"';]+/g, (run, place) => {
    const next = value.charAt(place + run.length);
    return /[;\t\r\n]/.test(run) && next && FORMULA_SIGNS.includes(next) ? `${run}'` : run;
  });
  const words = isFormula ? `'${marked}` : marked;
  return /[",;\t\r\n]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
}

function saveFile(name, lines) {
  const text = `\ufeff${lines.join("\r\n")}\r\n`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000); // by then it is saved
}
