"use strict";
// A click on a heading sorts its table: numbers downwards first, then upwards; rows without a value come last.
document.addEventListener("click", (event) => {
  const heading = event.target.closest("details th");
  if (!heading) return;
  const body = heading.closest("table").tBodies[0];
  const place = heading.cellIndex;
  const key = (row) => {
    const cell = row.cells[place];
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    return cell.textContent === "-" ? null : cell.textContent;
  };
  const rows = [...body.rows];
  const numbers = rows.some((row) => typeof key(row) === "number");
  const upwards = heading.dataset.order === undefined ? !numbers : heading.dataset.order === "down";
  rows.sort((one, other) => {
    const [first, second] = [key(one), key(other)];
    if (first === null || second === null) return (first === null) - (second === null);
    const order = typeof first === "number" && typeof second === "number"
      ? first - second : String(first).localeCompare(String(second));
    return upwards ? order : -order;
  });
  for (const other of heading.parentNode.cells) delete other.dataset.order;
  heading.dataset.order = upwards ? "up" : "down";
  body.append(...rows);
});
// The filter shows rows that contain its text, and opens the reports that have any.
const opened = new Map();
document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const section of document.querySelectorAll("details[id]")) {
    if (!opened.has(section)) opened.set(section, section.open);
    let found = false;
    for (const row of section.querySelectorAll("tbody tr")) {
      const cells = [...row.cells];
      row.hidden = !cells.some((cell) => (cell.title || cell.textContent).toLowerCase().includes(wanted));
      found ||= !row.hidden;
    }
    section.open = wanted ? found : opened.get(section);
    section.hidden = !found;
  }
});
// A click on a box of a flame graph widens it, and those inside and around it with it.
for (const graph of document.querySelectorAll(".flame")) {
  const boxes = new Map([...graph.children].map((box) => [box, [parseFloat(box.style.left), parseFloat(box.style.width)]]));
  graph.addEventListener("click", (event) => {
    if (!boxes.has(event.target)) return;
    const [first, wide] = boxes.get(event.target);
    const place = (percent) => Math.min(Math.max((percent - first) / wide, 0), 1) * 100;
    for (const [box, [left, width]] of boxes) {
      const start = place(left);
      box.style.left = `${start}%`;
      box.style.width = `${place(left + width) - start}%`;
    }
  });
}
