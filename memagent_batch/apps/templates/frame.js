// Hands the data of this file to the page that shows it in a frame: a page from disk can't fetch another file.
if (window.parent !== window) {
  const data = JSON.parse(document.getElementById("data").textContent);
  // On a server, only a page of the same origin gets it; pages from disk have no origin.
  window.parent.postMessage(data, location.protocol === "file:" ? "*" : location.origin);
}
