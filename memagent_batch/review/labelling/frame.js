// Hands what this file holds to the page that shows it in a frame: a page from disk can't fetch another file.
if (window.parent !== window) {
  const part = JSON.parse(document.getElementById("part").textContent);
  // On a server, none but a page of the same origin gets it; pages from disk have no origin.
  window.parent.postMessage(part, location.protocol === "file:" ? "*" : location.origin);
}
