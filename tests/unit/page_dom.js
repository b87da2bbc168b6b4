// As much of a browser's DOM as the script of the HTML page uses, and actions of a reader on a page.
// Standard input: {page: tree of {tag, attributes, children}, actions}. Standard output: what each action shows.
"use strict";

class Element {
  constructor({tag, attributes, children}, parentNode = null) {
    Object.assign(this, {tag, attributes, parentNode, handlers: {}, hidden: false});
    this.nodes = children.map((child) => (typeof child === "string" ? child : new Element(child, this)));
    this.title = attributes.title ?? "";
    this.open = "open" in attributes;
    this.dataset = "data-value" in attributes ? {value: attributes["data-value"]} : {};
    this.style = Object.fromEntries((attributes.style ?? "").split(";").map((one) => one.split(":")));
  }
  get children() { return this.nodes.filter((node) => node instanceof Element); }
  get all() { return this.children.flatMap((child) => [child, ...child.all]); }
  get textContent() { return this.nodes.map((node) => node.textContent ?? node).join(""); }
  get cells() { return this.children; }
  get cellIndex() { return this.parentNode.cells.indexOf(this); }
  get rows() { return this.children; }
  get tBodies() { return this.children.filter((child) => child.tag === "tbody"); }
  append(...moved) { this.nodes = [...this.nodes.filter((node) => !moved.includes(node)), ...moved]; }
  addEventListener(type, handler) { this.handlers[type] = handler; }
  matches(selector) {  // "details th", "details[id]", ".flame"
    const [, outer, tag, attribute, css] = /^(?:(\w+) )?(\w+)?(?:\[(\w+)\])?(?:\.(\w+))?$/.exec(selector);
    return (!tag || this.tag === tag) && (!attribute || attribute in this.attributes)
      && (!css || this.attributes.class === css) && (!outer || this.parentNode?.closest(outer) != null);
  }
  closest(selector) { return this.matches(selector) ? this : this.parentNode?.closest(selector) ?? null; }
  querySelectorAll(selector) { return this.all.filter((one) => one.matches(selector)); }
  getElementById(id) { return this.all.find((one) => one.attributes.id === id); }
  dispatch(type) { for (let at = this; at; at = at.parentNode) at.handlers[type]?.({target: this}); }
}

const {page, actions} = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const document = new Element(page);
new Function("document", document.all.find((one) => one.tag === "script").textContent)(document);
const results = {
  sort(report, heading) {
    const section = document.getElementById(report);
    section.querySelectorAll("th").find((one) => one.textContent === heading).dispatch("click");
    return section.querySelectorAll("tbody tr").map((row) => row.cells.map((cell) => cell.textContent));
  },
  filter(text) {
    const field = document.getElementById("filter");
    field.value = text;
    field.dispatch("input");
    const shown = document.querySelectorAll("details[id]").filter((section) => !section.hidden);
    return Object.fromEntries(shown.map((section) => [
      section.attributes.id, [section.open, section.querySelectorAll("tbody tr").filter((row) => !row.hidden).length],
    ]));
  },
  zoom(name) {
    const boxes = document.querySelectorAll(".flame").at(-1).children;
    boxes.find((box) => box.textContent === name).dispatch("click");
    return Object.fromEntries(boxes.map((box) => [
      box.textContent, [parseFloat(box.style.left), parseFloat(box.style.width)],
    ]));
  },
};
console.log(JSON.stringify(actions.map(([action, ...options]) => results[action](...options))));
