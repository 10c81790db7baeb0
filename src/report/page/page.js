/* SPDX-License-Identifier: Apache-2.0
 *
 * The page as a whole. draw(document) shows a report's document, wherever it comes from; the page of a
 * file holds its own.
 */
function prepare(given) {
  const problems = [];
  for (const one of given.problems)
    problems.push(complete(one, problems.length + 1, given));
  for (const problem of problems) problem.own_words = problem.words;
  if (different(problems.map((problem) => problem.operation.name)).length > 1)
    for (const problem of problems) problem.words = problem.operation.title + " · " + problem.words;
  problems.forEach(placeUnderLimit);
  const meanings = new Map((given.gates || []).map((gate) => [gate.status, prose(gate.meaning)]));
  for (const problem of problems) problem.meanings = meanings;
  return { given, problems, meanings,
    peers: peersOf(problems) };
}

/* The peers of all problems with their names, in the order of those. */
function peersOf(problems) {
  const names = new Map(problems.flatMap((problem) => problem.baselines.map((one) => [one.peer, one.name])));
  return inOrder([...names.keys()]).map((peer) => ({ peer, name: names.get(peer) }));
}

/* ---- what is said first ---- */
/* How much faster on which GPU, each in a sentence; then the circumstances of each GPU type once. */
function headlines(problems) {
  const told = headlinesOf(problems), compared = told.some((one) => one.compared);
  return [told.map((one) => h("p", { class: !compared || one.compared ? "headline" : null }, unhyphened(one.sentence))),
    different(told.map((one) => one.circumstances)).map((text) => h("p", { class: "soft" }, text))];
}

/* ---- figures ---- */
function figures(report) {
  const { problems } = report;
  const timed = problems.filter((problem) => problem.timed).length;
  const tried = problems.reduce((sum, problem) => sum + (problem.configs_tried || 0), 0);
  const gpus = different(problems.map((problem) => problem.silicon)).length;
  const imported = problems.filter((problem) => problem.timed && problem.known_how === "imported").length;
  const defaults = problems.map((problem) => problem.speedup_over_default).filter((x) => x > 0);
  const slow = problems.filter((problem) => problem.slow).length;
  const rows = [
    [grouped(problems.length), "problem" + (problems.length === 1 ? "" : "s") + " on " +
      count(gpus, "GPU type")],
    [grouped(timed), "measured" + (imported === 0 ? "" : imported === timed ? " elsewhere, imported"
      : ", " + grouped(imported) + " of them elsewhere") +
      (timed === problems.length ? "" : ", " + grouped(problems.length - timed) + " not")],
    tried > 0 && [grouped(tried), "configs tried"],
    defaults.length > 0 && [ratio(geometricMean(defaults)), "the default config’s speed" +
      (defaults.length > 1 ? ", geometric mean" : "")],
    slow > 0 && ["⚠ " + grouped(slow), "below half a baseline’s speed"],
  ];
  return h("ul", { class: "facts" }, rows.filter(Boolean).map(([number, what]) =>
    h("li", {}, h("b", {}, number), " ", h("span", {}, what))));
}

function coverage(problems) {
  const { total, steps } = cover(problems);
  if (total < 2) return null;
  const silicons = different(problems.filter((p) => p.timed).map((p) => p.silicon)).length;
  const known = problems.some((problem) => problem.known_how === "imported" && !problem.configs_tried)
    ? " For some imported problems only the winner is known, so fewer configs may be enough." : "";
  return h("section", { "aria-labelledby": "cover-h" },
    h("h2", { id: "cover-h" }, count(steps.length, "config") + " cover" +
      (steps.length === 1 ? "s" : "") + " these " + count(total, "measured problem") +
      " within 2%"),
    small("Each row adds the config that is within 2% of the fastest on most of the remaining " +
      "problems" + (silicons > 1 ? ", of all " + count(silicons, "GPU type") : "") + "." + known),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Few configs" },
      h("table", {}, h("caption", { class: "hidden" }, "Configs that cover the problems"),
        h("thead", {}, h("tr", {}, ["problems", "so far", "config"].map((head, i) =>
          h("th", { scope: "col", class: i < 2 ? "n" : null }, head)))),
        h("tbody", {}, steps.slice(0, 10).map((step) => h("tr", {},
          h("td", { class: "n" }, grouped(step.problems)),
          h("td", { class: "n" }, percent(step.covered / total)),
          h("th", { scope: "row", class: "mono" }, step.config)))))),
    steps.length > 10 ? small(count(steps.length - 10, "further config") + " for the rest.") : null);
}

/* ---- beyond single problems ---- */
function section(id, title, ...children) {
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), children);
}

/* ---- what a layer takes in training ---- */
function training(problems) {
  const rows = trainingOf(problems);
  if (rows.length === 0) return null;
  const passColumn = (head, pass) => ({ head, number: true, value: (row) => pass(row).us,
    cell: (row) => h("a", { href: "#p" + pass(row).number }, pass(row).timed
      ? microseconds(pass(row).us) : guess(about(pass(row).us))) });
  return section("training", "Training: backward beside forward",
    sortable({ label: "Training: backward beside forward", caption: "Training: backward beside forward",
      rows, className: "stick stacked", most: ROWS_MAX, columns: [
        { head: "forward pass", row: true, cell: (row) => row.forward.own_words },
        { head: "GPU", cell: (row) => row.forward.gpu.name },
        passColumn("forward", (row) => row.forward), passColumn("backward", (row) => row.backward),
        { head: "backward over forward", number: true, value: (row) => row.ratio,
          cell: (row) => !(row.ratio > 0) ? NONE : row.measured ? ratio(row.ratio) : guess("~" + ratio(row.ratio)) },
        { head: "together", number: true, value: (row) => row.together_us,
          cell: (row) => !(row.together_us > 0) ? NONE : row.measured ? microseconds(row.together_us)
            : guess(about(row.together_us)) },
      ] }));
}

/* ---- what tuning was worth ---- */
function pay(problems) {
  const rows = payOf(problems);
  if (rows.length === 0) return null;
  const several = different(rows.map((row) => row.operation)).length > 1;
  const gpus = different(rows.map((row) => row.gpu)).length;
  const probes = rows.reduce((most, row) => Math.max(most, row.probes), 0);
  return section("pay", "Does tuning pay?",
    h("p", {}, "The gain is the other kernel’s time divided by the winner’s. A fixed config is the config " +
      "that was measured on most of the problems and is fastest there on average; its time on the " +
      "remaining problems is not known." +
      (probes > 0 ? " Up to " + grouped(probes) + " times of a row are probes, taken alone and not in a " +
        "race with the winner: differences of a few percent between them mean nothing." : "")),
    sortable({ label: "Does tuning pay?", caption: "Winners against the default and fixed configs",
      rows, className: "stacked", columns: [
        gpus > 1 ? { head: "GPU", row: true, cell: (row) => row.gpu } : null,
        several ? { head: "operation", cell: (row) => row.operation.title } : null,
        { head: "winners compared with", row: gpus === 1, cell: (row) => row.against },
        { head: "problems", number: true, value: (row) => row.problems,
          cell: (row) => grouped(row.problems) + " of " + grouped(row.of) },
        { head: "gain", number: true, value: (row) => row.gain, cell: (row) => ratio(row.gain) },
        { head: "most", number: true, value: (row) => row.most, cell: (row) => ratio(row.most) },
        { head: "probes", number: true, value: (row) => row.probes,
          cell: (row) => row.probes > 0 ? grouped(row.probes) : NONE },
        { head: "configs", className: "mono wide", cell: (row) => row.configs.length > 0
          ? row.configs.map((config, i) => [i > 0 ? h("br") : null, config]) : NONE },
      ].filter(Boolean) }));
}

/* ---- assembly ---- */
function foot({ given, problems }) {
  const left = problems.reduce((sum, problem) => sum + problem.configs_left_out, 0);
  const counting = different(problems.map((problem) => problem.operation)).filter((one) => one.counts);
  const other = given.not_asked_for, older = given.earlier_generations;
  return h("footer", {},
    other > 0 && problems.length > 0 ? h("p", {}, count(other, "more problem") + " in the store, left out by the filters.") : null,
    older > 0 ? h("p", {}, count(older, "earlier generation") + " of these problems left out: made with " +
      "other templates.") : null,
    left > 0 ? h("p", {}, "To keep this page small, " + grouped(left) + " configs that were " +
      "tried are counted but not listed: ", h("code", {}, "--json"), " lists all.") : null,
    counting.map((one) => h("p", {}, counting.length > 1 ? "Of " + one.title + ": " : "", prose(one.counts))));
}

function emptyPage(given) {
  return h("p", {}, given.not_asked_for > 0 ? "No problem in this store (" + grouped(given.not_asked_for) +
    " in all) matches the filters." : ["This store holds no problem yet: tune one, " +
    "as in ", h("code", {}, "fa-tune --gpu L4 --seq 512"), "."]);
}

/* Opens a problem's card when its link is followed, and takes the reader there. */
function cardsOf(report) {
  const box = h("div", { id: "cards" });
  const hint = box.hint = small("Choose a problem of the list to see its kernel, its race and its configs.");
  function show(number, travel) {
    const problem = report.problems[number - 1];
    if (!problem) return;
    let open = document.getElementById("p" + number);
    if (!open) {
      open = card(problem, report, report.problems.length > 1 ? () => {
        open.remove();
        hint.hidden = box.querySelector("article") !== null;
        const link = document.querySelector('#summary a[href="#p' + number + '"]');
        if (link) link.focus();
      } : null);
      box.append(open);
      hint.hidden = true;
    }
    if (!travel) return;
    open.scrollIntoView();
    open.querySelector("h3").focus({ preventScroll: true });
  }
  box.show = show;
  return box;
}

const OPEN_AT_FIRST = 2; /* cards, where there are no more problems */

function draw(given) {
  const report = prepare(given), { problems, peers } = report;
  const page = document.getElementById("page");
  const head = h("header", {}, h("h1", {}, "fa-tune report"), headlines(problems),
    h("p", { class: "soft" }, given.store + " · " + date(given.unix_time) + " · " +
      unhyphened("fa-tune\u00a0") + given.fa_tune), problems.length > 0 ? figures(report) : null);
  if (problems.length === 0) {
    page.replaceChildren(head, h("main", {}, h("section", { id: "summary" }, emptyPage(given))),
      foot(report));
    return;
  }
  const { columns, note } = columnsOf(problems, peers);
  const list = sortable({ label: "Summary", caption: "Summary of all problems", rows: [], columns,
    className: "stick summary stacked",
    most: matchMedia("(max-width: 40rem)").matches ? ROWS_NARROW : ROWS_MAX });
  const [lengths, left, covers, roofs] = [h("div"), h("div"), h("div"), h("div")];
  const put = (place, made) => place.replaceChildren(...[made].filter(Boolean));
  const filters = filterBar(problems, peers, (kept) => {
    list.show(kept);
    put(left, kept.length > 0 ? h("div", {}, list, cards.hint) : small("No problem matches the filters."));
    put(lengths, lengthCharts(kept, peers));
    put(covers, coverage(kept));
    put(roofs, rooflines(kept));
  });
  const cards = cardsOf(report);
  page.replaceChildren(head, h("main", {},
    problems.length > 1 ? filters : null, lengths,
    h("section", { id: "summary", "aria-labelledby": "summary-h" },
      h("h2", { id: "summary-h" }, "Problems"),
      small(note, ceilingWords(problems), problems.every((problem) => problem.timed || !problem.winner) ? null
        : [guess("~ in italics"), " is predicted, not measured."]), left), cards, covers, training(problems), pay(problems), roofs),
    foot(report));
  filters.apply();
  for (let number = 1; problems.length <= OPEN_AT_FIRST && number <= problems.length; number++)
    cards.show(number, false);
  const follow = () => {
    const match = /^#p(\d+)$/.exec(location.hash);
    if (match) cards.show(Number(match[1]), true);
  };
  window.onhashchange = follow;
  page.onclick = (event) => {
    const link = event.target.closest("a[href^='#p']");
    if (!link) return;
    event.preventDefault();
    history.replaceState(null, "", link.getAttribute("href"));
    follow();
  };
  follow();
}

new Record();
globalThis.report = { draw };
const own = document.getElementById("document").textContent.trim();
if (own) draw(JSON.parse(own));
