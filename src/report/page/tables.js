/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables that sort by the column whose head is pressed, and turn round when it is pressed again. The
 * unknown stay last either way. They scroll in their own box, so that the page never does sideways.
 *
 * A column: {head, cell(row), value(row), number, row, className}. `value` is what it sorts by, where
 * that is not the cell's text; `row`: its cells name their rows.
 */
function sortRows(rows, column, down) {
  const unknown = (value) => value === undefined || value === null || value === "" ||
    (column.number && !(value > 0 || value <= 0));
  const known = rows.filter((row) => !unknown(column.value(row)));
  const order = (a, b) => column.number ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
  known.sort((a, b) => (down ? -1 : 1) * order(column.value(a), column.value(b)));
  return known.concat(rows.filter((row) => unknown(column.value(row))));
}

/* {label, caption, rows, columns, className, keys, most}: a box with a table. Its `show(rows)` puts
 * others in. Of more than `most` rows the rest come when they are asked for. */
function sortable({ label, caption, rows, columns, className, keys, most }) {
  let sorted = null, down = false, limit = most || Infinity, all = rows;
  const body = h("tbody");
  const more = h("button", { type: "button", class: "quiet", click: () => {
    limit = Infinity;
    draw();
  } });
  const heads = columns.map((column) => {
    if (!column.value)
      column.value = (row) => {
        const made = h("p", {}, column.cell(row)).textContent;
        return made === NONE ? "" : made;
      };
    return h("th", { scope: "col", class: column.number ? "n" : null, "aria-sort": "none" },
      h("button", { type: "button", click: () => press(column) }, column.head));
  });

  function press(column) {
    down = sorted === column && !down;
    sorted = column;
    heads.forEach((head, i) => head.setAttribute("aria-sort",
      columns[i] !== column ? "none" : down ? "descending" : "ascending"));
    announce("sorted by " + column.head + (down ? ", descending" : ", ascending"));
    draw();
  }

  function draw() {
    const ordered = sorted ? sortRows(all, sorted, down) : all;
    body.replaceChildren(...ordered.slice(0, limit).map((row) => h("tr", {}, columns.map((column) => {
      const cell = column.cell(row);
      return h(column.row ? "th" : "td", { scope: column.row ? "row" : null,
        class: [column.number ? "n" : "", column.className || "", cell === NONE ? "none" : ""].filter(Boolean).join(" ") || null,
        "data-head": column.row ? null : column.head }, cell);
    }))));
    more.hidden = ordered.length <= limit;
    more.textContent = "Show all " + grouped(ordered.length);
    if (keys) enterGroups(box);
  }

  const box = h("div", { class: "box" },
    h("div", { class: "scroll" + (className ? " " + className : ""), tabindex: 0, role: "region",
      "aria-label": label },
    h("table", { class: "sort", "data-keys": keys }, h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, heads)), body)), more);
  box.show = (others) => {
    all = others;
    draw();
  };
  draw();
  return box;
}
