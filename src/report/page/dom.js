/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements. Texts come from a store, which may hold anything: they only ever become text nodes and
 * attributes, and a character that is not seen, or that reorders what stands around it, is shown as its
 * escape.
 */
const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function harmless(text) {
  return String(text).replace(UNSEEN, (unseen) => {
    const code = unseen.charCodeAt(0);
    return code < 0x80 ? "\\x" + code.toString(16).padStart(2, "0")
      : "\\u" + code.toString(16).padStart(4, "0");
  });
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : harmless(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    element.append(child instanceof Node ? child : harmless(child));
  }
  return element;
}

/* h("p", {class: "small"}, "text", node, [more]) */
function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function soft(...children) {
  return h("span", { class: "soft" }, ...children);
}

function small(...children) {
  return h("p", { class: "small soft" }, ...children.flat(Infinity).map((one) =>
    typeof one === "string" ? one.replace(/fa-tune/g, "fa\u2011tune") : one));
}

/* A drawing that a screen reader hears as its title and its description. */
let drawings = 0;
function picture(attributes, title, description, ...children) {
  const id = "d" + ++drawings;
  return svg("svg", { role: "img", "aria-labelledby": id + "t " + id + "d", ...attributes },
    svg("title", { id: id + "t" }, title), svg("desc", { id: id + "d" }, description), ...children);
}

function announce(text) {
  document.getElementById("live").textContent = harmless(text);
}
