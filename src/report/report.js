/* SPDX-License-Identifier: Apache-2.0
 *
 * What the page does beyond being read: tables sort, and a config tells its whole record when the
 * pointer or the focus is on it, or in a dialog when it is opened. Without this script everything
 * but the records is there all the same.
 */
(function () {
  "use strict";
  var tip = document.getElementById("tip");
  var dialog = document.getElementById("record");
  var live = document.getElementById("live");
  var labels = JSON.parse(document.getElementById("labels").textContent);
  var records = {};

  /* ---- sorting ---- */
  function value(row, column, number) {
    var cell = row.cells[column];
    var text = cell.hasAttribute("data-v") ? cell.getAttribute("data-v") : cell.textContent.trim();
    return number ? (text === "" ? NaN : Number(text)) : text;
  }

  function sort(table, column) {
    var heads = table.tHead.rows[0].cells;
    var head = heads[column];
    var number = head.classList.contains("n");
    var down = head.getAttribute("aria-sort") === "ascending";
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    rows.sort(function (a, b) {
      var x = value(a, column, number), y = value(b, column, number), order;
      if (number) {
        if (x !== x || y !== y) return (x !== x) - (y !== y); /* the unknown stay last */
        order = x - y;
      } else {
        order = x.localeCompare(y, "en", { numeric: true });
      }
      return down ? -order : order;
    });
    rows.forEach(function (row) { body.appendChild(row); });
    for (var i = 0; i < heads.length; i++) heads[i].setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    live.textContent = "sorted by " + head.textContent + (down ? ", descending" : ", ascending");
  }

  document.querySelectorAll("table.sort").forEach(function (table) {
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      while (head.firstChild) button.appendChild(head.firstChild);
      head.appendChild(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", function () { sort(table, column); });
    });
  });

  /* ---- records ---- */
  function record(element) {
    var at = element.getAttribute("data-c").split(".");
    if (!records[at[0]])
      records[at[0]] = JSON.parse(document.getElementById("c" + at[0]).textContent);
    return records[at[0]][Number(at[1])];
  }

  function fill(parent, row) {
    var list = document.createElement("dl");
    list.className = "pairs";
    row.forEach(function (text, i) {
      if (text === "") return;
      var term = document.createElement("dt"), data = document.createElement("dd");
      term.textContent = labels[i];
      data.textContent = text;
      list.appendChild(term);
      list.appendChild(data);
    });
    parent.replaceChildren(list);
  }

  var shown = null;
  function hide() {
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  }

  function show(element) {
    if (shown === element || dialog.open) return;
    hide();
    shown = element;
    fill(tip, record(element));
    tip.hidden = false;
    element.setAttribute("aria-describedby", "tip");
    place(element.getBoundingClientRect());
  }

  function place(box) {
    var width = document.documentElement.clientWidth, height = document.documentElement.clientHeight;
    var top = box.bottom + 8, left = box.left; /* below, else above, else beside it */
    if (top + tip.offsetHeight > height) top = box.top - 8 - tip.offsetHeight;
    if (top < 0) {
      left = box.right + 8 + tip.offsetWidth <= width ? box.right + 8 : box.left - 8 - tip.offsetWidth;
      top = Math.min(box.top, height - tip.offsetHeight - 4);
    }
    tip.style.top = Math.max(4, top) + "px";
    tip.style.left = Math.max(8, Math.min(left, width - tip.offsetWidth - 8)) + "px";
  }

  /* Moving the focus scrolls the page: what has the focus keeps its record while it is in view. */
  function follow() {
    if (!shown) return;
    var box = shown.getBoundingClientRect();
    var inView = box.bottom > 0 && box.top < document.documentElement.clientHeight &&
      box.right > 0 && box.left < document.documentElement.clientWidth;
    if (shown === document.activeElement && inView) place(box); else hide();
  }

  function owner(event) {
    return event.target.closest ? event.target.closest("[data-c]") : null;
  }

  document.addEventListener("focusin", function (event) {
    var element = owner(event);
    if (element) show(element); else hide();
  });
  document.addEventListener("pointerover", function (event) {
    var element = owner(event);
    if (event.pointerType === "touch") return;
    if (element) show(element);
    else if (shown && shown !== document.activeElement) hide();
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") hide();
  });
  document.addEventListener("scroll", follow, { passive: true });
  document.addEventListener("click", function (event) {
    var element = owner(event);
    if (!element) return;
    hide();
    fill(document.getElementById("record-text"), record(element));
    dialog.showModal();
  });
  document.getElementById("record-close").addEventListener("click", function () { dialog.close(); });

  /* ---- keys: one stop of the Tab key for a whole group, arrows inside it ---- */
  function grid(group) {
    return Array.prototype.map.call(group.querySelectorAll("tr"), function (row) {
      return Array.prototype.slice.call(row.querySelectorAll("[data-c]"));
    }).filter(function (row) { return row.length > 0; });
  }

  function move(group, event) {
    var element = owner(event), rows = grid(group);
    if (!element) return;
    var y = rows.findIndex(function (row) { return row.indexOf(element) >= 0; });
    var x = rows[y].indexOf(element);
    if (event.key === "ArrowDown") y++;
    else if (event.key === "ArrowUp") y--;
    else if (event.key === "ArrowRight") x++;
    else if (event.key === "ArrowLeft") x--;
    else if (event.key === "Home") x = 0;
    else if (event.key === "End") x = rows[y].length - 1;
    else return;
    event.preventDefault();
    if (y < 0 || y >= rows.length || x < 0) return;
    var next = rows[y][Math.min(x, rows[y].length - 1)];
    element.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  document.querySelectorAll("[data-keys]").forEach(function (group) {
    group.querySelectorAll("[data-c]").forEach(function (element, i) {
      element.tabIndex = i === 0 ? 0 : -1;
    });
    group.addEventListener("keydown", function (event) { move(group, event); });
  });
})();
