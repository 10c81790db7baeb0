/* SPDX-License-Identifier: Apache-2.0
 *
 * A config tells its whole record when the pointer or the focus is on it, and in a dialog when it is
 * opened. A group of configs is one stop of the Tab key, with arrows inside it.
 */
const recordOf = new WeakMap(); /* a button's config */

/* A config that the document does not tell is shown and opens nothing. */
function configButton(problem, config, className, text) {
  if (!config) return h("span", { class: className }, text);
  const button = h("button", { type: "button", class: className, tabindex: -1,
    "data-c": problem.number + "." + problem.configs.indexOf(config) }, text);
  recordOf.set(button, [problem, config]);
  return button;
}

function recordFields(problem, config) {
  const known = (value, unit) => value > 0 || value === 0 ? grouped(value) + unit : "";
  const clocks = config.clocks || {}, measured = config.median_us > 0;
  const meaning = problem.meanings.get(config.status);
  return [
    ["rank", [config.rank > 0 ? "#" + config.rank + (config.winner ? ", the winner" : "") : "",
      config.default ? "the family’s default" : ""].filter(Boolean).join(", ")],
    ["family", config.config.family],
    ["tunables", Object.entries(config.config.tunables).map((pair) => pair.join("=")).join(" ")],
    ["ended at", config.status + (meaning ? ": " + meaning : "")],
    ["because", config.reason],
    ["measured", measured ? microseconds(config.median_us) +
      (config.raced ? ", in the race of the finalists" : ", in its probe") : ""],
    ["95% interval", measured ? microseconds(config.low_us) + " to " + microseconds(config.high_us)
      : ""],
    ["samples", measured ? known(config.sample_count, "") : ""],
    ["model says", config.predicted_us > 0
      ? about(config.predicted_us) + (measured ? "" : " (a prediction)") : ""],
    ["threads", known(config.threads, "")],
    ["shared memory", known(config.smem_bytes, " B") +
      (config.static_smem_bytes > 0 ? " and " + grouped(config.static_smem_bytes) + " B of the kernel’s own" : "")],
    ["registers", known(config.registers, " a thread")],
    ["spills", known(config.spill_bytes, " B a thread")],
    ["blocks per SM", known(config.blocks_per_sm, "")],
    ["grid", config.grid && config.grid[0] > 0 ? config.grid.join(" × ") : ""],
    ["compile time", config.compile_ms > 0 ? grouped(config.compile_ms) + " ms" : ""],
    ["largest error", config.tolerance > 0 ? (config.max_error || 0).toPrecision(3) : ""],
    ["error allowed", config.tolerance > 0 ? config.tolerance.toPrecision(3) : ""],
    ["SM clock after", known(clocks.sm_mhz, " MHz")],
    ["memory clock after", known(clocks.memory_mhz, " MHz")],
    ["temperature", known(clocks.temperature_c, " °C")],
    ["throttled by", clocks.throttle],
    ["seed", config.seed],
    ["cubin", config.cubin_key],
    ["recorded", config.unix_time > 0 ? date(config.unix_time) : ""],
  ];
}

function pairs(fields) {
  return h("dl", { class: "pairs" }, fields.filter(([, text]) => text)
    .map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
}

class Record {
  constructor() {
    this.tip = document.getElementById("tip");
    this.dialog = document.getElementById("record");
    this.shown = null;
    const owner = (event) => event.target.closest ? event.target.closest("[data-c]") : null;
    document.addEventListener("focusin", (event) => this.point(owner(event)));
    document.addEventListener("pointerover", (event) => {
      if (event.pointerType === "touch") return;
      if (owner(event)) this.point(owner(event));
      else if (this.shown && this.shown !== document.activeElement) this.hide();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.hide();
      else if (owner(event)) this.move(owner(event), event);
    });
    document.addEventListener("scroll", () => this.follow(), { passive: true });
    document.addEventListener("click", (event) => owner(event) && this.open(owner(event)));
    document.getElementById("record-close")
      .addEventListener("click", () => this.dialog.close());
  }

  fields(element) {
    return pairs(recordFields(...recordOf.get(element)));
  }

  hide() {
    if (this.shown) this.shown.removeAttribute("aria-describedby");
    this.shown = null;
    this.tip.hidden = true;
  }

  point(element) {
    if (!element) return this.hide();
    if (this.shown === element || this.dialog.open) return undefined;
    this.hide();
    this.shown = element;
    this.tip.replaceChildren(this.fields(element));
    this.tip.hidden = false;
    element.setAttribute("aria-describedby", "tip");
    return this.place(element.getBoundingClientRect());
  }

  /* Below what it tells of, else above, else beside it. */
  place(box) {
    const tip = this.tip, root = document.documentElement;
    const width = root.clientWidth, height = root.clientHeight;
    let top = box.bottom + 8, left = box.left;
    if (top + tip.offsetHeight > height) top = box.top - 8 - tip.offsetHeight;
    if (top < 0) {
      left = box.right + 8 + tip.offsetWidth <= width ? box.right + 8
        : box.left - 8 - tip.offsetWidth;
      top = Math.min(box.top, height - tip.offsetHeight - 4);
    }
    tip.style.top = Math.max(4, top) + "px";
    tip.style.left = Math.max(8, Math.min(left, width - tip.offsetWidth - 8)) + "px";
  }

  /* Moving the focus scrolls the page: what has the focus keeps its record while it is in view. */
  follow() {
    if (!this.shown) return;
    const box = this.shown.getBoundingClientRect(), root = document.documentElement;
    const inView = box.bottom > 0 && box.top < root.clientHeight &&
      box.right > 0 && box.left < root.clientWidth;
    if (this.shown === document.activeElement && inView) this.place(box);
    else this.hide();
  }

  open(element) {
    this.hide();
    document.getElementById("record-text").replaceChildren(this.fields(element));
    this.dialog.showModal();
  }

  move(element, event) {
    const group = element.closest("[data-keys]");
    if (!group) return;
    const rows = [...group.querySelectorAll("tr")].map((row) =>
      [...row.querySelectorAll("[data-c]")]).filter((row) => row.length > 0);
    let y = rows.findIndex((row) => row.includes(element)), x = rows[y].indexOf(element);
    if (event.key === "ArrowDown") y++;
    else if (event.key === "ArrowUp") y--;
    else if (event.key === "ArrowRight") x++;
    else if (event.key === "ArrowLeft") x--;
    else if (event.key === "Home") x = 0;
    else if (event.key === "End") x = rows[y].length - 1;
    else return;
    event.preventDefault();
    if (y < 0 || y >= rows.length || x < 0) return;
    const next = rows[y][Math.min(x, rows[y].length - 1)];
    element.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

/* The first of each group is reached by the Tab key. */
function enterGroups(root) {
  for (const group of root.querySelectorAll("[data-keys]")) {
    const first = group.querySelector("[data-c]");
    if (first) first.tabIndex = 0;
  }
}
