// A click on the title of a column sorts its table; one more turns it round.
document.addEventListener("click", (event) => {
  const title = event.target.closest(".bd-article thead th");
  if (!title) return;
  const rising = title.ariaSort !== "ascending";
  title.parentNode.querySelectorAll("th").forEach((one) => (one.ariaSort = "none"));
  title.ariaSort = rising ? "ascending" : "descending";
  const body = title.closest("table").tBodies[0];
  const words = (row) => row.cells[title.cellIndex].textContent;
  const rows = [...body.rows].sort((a, b) => words(a).localeCompare(words(b), "en", { numeric: true }));
  body.append(...(rising ? rows : rows.reverse()));
});
