"use strict";
const [words, outcome] = document.querySelectorAll("#search input, #search select");
const found = document.querySelector("#search output");
function look() {
  const wanted = words.value.toLowerCase().split(" ").filter(Boolean);
  const asked = wanted.length > 0 || outcome.value !== "";
  let all = 0;
  for (const step of document.querySelectorAll("details.phase")) {
    let rows = 0;
    for (const row of step.querySelectorAll("tr.verdict")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !(row.className.endsWith(outcome.value) && wanted.every((word) => text.includes(word)));
      rows += !row.hidden;
    }
    step.hidden = asked && rows === 0;
    step.open = asked && rows > 0;
    all += rows;
  }
  found.textContent = asked ? all + " rows" : "";
}
words.addEventListener("input", look);
outcome.addEventListener("input", look);
document.getElementById("search").hidden = false;
