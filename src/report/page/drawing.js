/* SPDX-License-Identifier: Apache-2.0
 *
 * Axes and marks that the charts share. A frame places values in the units of its viewBox.
 */
class Frame {
  constructor(box, x, y) {
    Object.assign(this, { left: 48, top: 14, right: 12, bottom: 38, ...box });
    this.inner = { width: this.width - this.left - this.right,
      height: this.height - this.top - this.bottom };
    this.axes = { x, y };
  }

  part(axis, value) {
    const { low, high, log } = this.axes[axis];
    return log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  }

  x(value) { return this.left + this.inner.width * this.part("x", value); }
  y(value) { return this.top + this.inner.height * (1 - this.part("y", value)); }

  /* A line and a number at each of these values. */
  grid(axis, values, text) {
    const upright = axis === "x";
    return values.map((value) => {
      const at = upright ? this.x(value) : this.y(value);
      const line = upright ? "M" + at + " " + this.top + "v" + this.inner.height
        : "M" + this.left + " " + at + "h" + this.inner.width;
      return [svg("path", { class: "grid", d: line }),
        svg("text", { class: "soft", x: upright ? at : this.left - 6,
          y: upright ? this.height - this.bottom + 16 : at + 4,
          "text-anchor": upright ? "middle" : "end" }, (text || grouped)(value))];
    });
  }

  names(x, y) {
    return [svg("text", { class: "soft", x: this.left + this.inner.width / 2, y: this.height - 4,
      "text-anchor": "middle" }, x),
    svg("text", { class: "soft", "text-anchor": "middle", transform: "translate(11 " +
      (this.top + this.inner.height / 2) + ") rotate(-90)" }, y)];
  }
}

/* 0, 200, 400 …: about so many round steps, the last of them not below what is to be shown. */
function roundSteps(most, wanted) {
  const rough = most / wanted, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const values = [0];
  for (let i = 1; values[values.length - 1] < most * 0.9999; i++) values.push(i * step);
  return values;
}

/* 1, 2 and 5 of each decade; its 1 alone where there are many. The first is not above `low`, the last not below
 * `high`. */
function decades(low, high) {
  const within = high / low > 300 ? [1] : [1, 2, 5], values = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const one of within) values.push(one * Math.pow(10, power));
  const first = values.findLastIndex((value) => value <= low * 1.0001);
  const last = values.findIndex((value) => value >= high * 0.9999);
  return values.slice(Math.max(0, first), last < 0 ? values.length : last + 1);
}

/* 0.002, 1.5, 500, 12.5k: of an axis. */
function plainNumber(value) {
  return value >= 1e4 && value < 1e12 ? plainNumber(value / 1000) + "k"
    : value >= 100 && value < 1e12 ? grouped(value) : String(Number(value.toPrecision(3)));
}

/* 512, 1k, 2k: lengths as papers write them. */
function shortLength(value) {
  return value >= 1024 && value % 1024 === 0 ? grouped(value / 1024) + "k" : grouped(value);
}

/* Marks differ by form and not by colour alone. */
const FORMS = [
  (x, y) => ["circle", { cx: x, cy: y, r: 4.5 }],
  (x, y) => ["path", { d: "M" + x + " " + (y - 5.5) + "l5.5 5.5l-5.5 5.5l-5.5-5.5z" }],
  (x, y) => ["rect", { x: x - 4, y: y - 4, width: 8, height: 8 }],
  (x, y) => ["path", { d: "M" + x + " " + (y - 5) + "l5 9h-10z" }],
  (x, y) => ["path", { d: "M" + x + " " + (y + 5) + "l5-9h-10z" }],
  (x, y) => ["path", { d: "M" + (x - 4) + " " + (y - 4) + "l8 8m0-8l-8 8" }],
];

function mark(form, x, y, className, ...children) {
  const [name, attributes] = FORMS[form % FORMS.length](x, y);
  return svg(name, { class: className, ...attributes }, children);
}

/* Moves labels apart that stand over one another, none below `bottom`; each is {y}, highest first. */
function spread(labels, step, bottom) {
  labels.sort((a, b) => a.y - b.y);
  for (let i = 1; i < labels.length; i++)
    labels[i].y = Math.max(labels[i].y, labels[i - 1].y + step);
  const over = labels.length > 0 ? labels[labels.length - 1].y - bottom : 0;
  for (const label of labels) if (over > 0) label.y -= over;
  return labels;
}
