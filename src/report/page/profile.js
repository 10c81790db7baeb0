/* SPDX-License-Identifier: Apache-2.0
 *
 * What Nsight Compute counted of a problem's configs, beside the roofline: a sentence about each, and a column for each
 * launch.
 */
const FIGURES = [["SMs busy", "sm_busy_percent"], ["tensor cores", "tensor_percent"],
  ["special functions", "special_percent"], ["issue slots", "issue_percent"], ["shared memory", "shared_percent"],
  ["L2", "l2_percent"], ["memory", "memory_percent"], ["occupancy", "occupancy_percent"],
  ["bank conflicts", "bank_conflict_percent"]];

function profile(problem) {
  if (problem.profiles.length === 0) return null;
  const name = (one) => one.rank > 0 ? "#" + one.rank : configWords(one.config);
  const launches = problem.profiles.flatMap((one) => one.launches.map((launch) =>
    ({ head: name(one), stalls: {}, ...launch })));
  const row = (words, value) => h("tr", {}, h("th", { scope: "row" }, words),
    launches.map((launch) => h("td", { class: "n" }, value(launch))));
  const reasons = [...new Set(launches.flatMap((launch) => Object.keys(launch.stalls)))];
  return h("section", { class: "panel", "aria-label": "Profile" }, h("h4", {}, "Profile"),
    problem.profiles.map((one) => h("p", {}, h("b", {}, name(one)), " ", one.sentence, ".")),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Counters" },
      h("table", {}, h("caption", { class: "hidden" }, "Counters of each launch, from Nsight Compute"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "launch"), launches.map((launch) =>
          h("th", { scope: "col", class: "n" }, launch.head + " " + launch.kernel)))),
        h("tbody", {}, row("time", (launch) => launch.time_us > 0 ? microseconds(launch.time_us) : NONE),
          FIGURES.map(([words, key]) => row(words, (launch) =>
            launch[key] >= 0 ? launch[key].toFixed(0) + "%" : NONE)),
          reasons.map((reason) => row("stall " + reason, (launch) =>
            reason in launch.stalls ? launch.stalls[reason].toFixed(1) : NONE))))),
    small("Shares of the peak, of one launch with empty caches; a stall is how many warps of a scheduler wait for it " +
      "at each instruction."));
}

