(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  function each(selector, act) { Array.prototype.forEach.call(document.querySelectorAll(selector), act); }
  var theme = document.getElementById("theme");
  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function name() { theme.textContent = dark() ? "Light" : "Dark"; }
  theme.addEventListener("click", function () { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
  each("[data-copy]", function (button) {
    var text = document.getElementById(button.dataset.copy);
    button.addEventListener("click", function () {
      function selected() { getSelection().selectAllChildren(text); button.textContent = "Selected"; }
      if (!navigator.clipboard) { selected(); return; }
      navigator.clipboard.writeText(text.textContent).then(function () { button.textContent = "Copied"; }, selected);
    });
  });
  each(".zoom", function (bar) {
    var view = document.getElementById(bar.dataset.of), size = 1, said = bar.querySelector("output");
    function to(next) {
      var middle = (view.scrollLeft + view.clientWidth / 2) / view.scrollWidth;
      size = Math.min(16, Math.max(1, next));
      view.style.setProperty("--zoom", String(size));
      view.scrollLeft = middle * view.scrollWidth - view.clientWidth / 2;
      said.textContent = 100 * size + " %";
    }
    each("[data-of='" + bar.dataset.of + "'] button", function (button) {
      button.addEventListener("click", function () { to(button.value === "0" ? 1 : size * Number(button.value)); });
    });
    view.addEventListener("keydown", function (event) {
      if (event.key === "+" || event.key === "=") { to(size * 2); } else if (event.key === "-") { to(size / 2); }
      else if (event.key === "0") { to(1); } else { return; }
      event.preventDefault();
    });
    view.addEventListener("wheel", function (event) {
      if (event.ctrlKey) { event.preventDefault(); to(event.deltaY < 0 ? size * 1.25 : size / 1.25); }
    }, { passive: false });
  });
  var tip = document.body.appendChild(document.createElement("div"));
  var ring = document.body.appendChild(document.createElement("div"));
  var heard = document.body.appendChild(document.createElement("div"));
  tip.id = "tip"; ring.id = "ring"; tip.hidden = ring.hidden = true;
  tip.setAttribute("aria-hidden", "true"); ring.setAttribute("aria-hidden", "true");
  heard.className = "heard"; heard.setAttribute("role", "status");
  function hide() {
    tip.hidden = ring.hidden = true;
    each(".pointed", function (mark) { mark.classList.remove("pointed"); });
  }
  function marks(svg) {
    var found = [];
    Array.prototype.forEach.call(svg.querySelectorAll("[data-v]"), function (shape) {
      var values = shape.dataset.v.split("\n");
      if (values.length === 1) {
        var box = shape.getBBox(), whole = { text: values[0], x: box.x, y: box.y, w: box.width, h: box.height };
        if (shape.tagName !== "path") { whole.shape = shape; }
        found.push(whole);
        return;
      }
      shape.getAttribute("d").split("M").slice(1).forEach(function (step, place) {
        var n = step.match(/-?[\d.]+/g).map(Number), block = n.length > 3;
        if (values[place]) { found.push({ text: values[place], x: n[0], y: n[1], w: block ? n[2] : 0, h: block ? n[3] : 0 }); }
      });
    });
    return found;
  }
  function show(svg, mark, x, y) {
    hide();
    var to = svg.getScreenCTM(), left = to.e + to.a * mark.x, top = to.f + to.d * mark.y;
    var wide = to.a * mark.w, tall = to.d * mark.h;
    if (mark.shape) { mark.shape.classList.add("pointed"); } else {
      ring.style.left = left + wide / 2 + "px"; ring.style.top = top + tall / 2 + "px"; ring.hidden = false;
    }
    tip.textContent = mark.text; tip.hidden = false;
    x = x === undefined ? left + wide / 2 : x; y = y === undefined ? top : y;
    var box = tip.getBoundingClientRect();
    tip.style.left = Math.max(6, Math.min(x - box.width / 2, innerWidth - box.width - 6)) + "px";
    tip.style.top = (y - box.height - 14 > 4 ? y - box.height - 14 : y + tall + 18) + "px";
  }
  each(".chart, .zoomable", function (view) {
    var svg = view.querySelector("svg"), known = null, at = -1;
    if (!svg || !svg.querySelector("[data-v]")) { return; }
    if (!view.hasAttribute("tabindex")) {
      view.tabIndex = 0; view.setAttribute("role", "group");
      view.setAttribute("aria-label", "Chart, arrow keys read its values");
    }
    function all() { return known || (known = marks(svg)); }
    view.addEventListener("pointermove", function (event) {
      var to = svg.getScreenCTM().inverse(), x = to.a * event.clientX + to.e, y = to.d * event.clientY + to.f, best = null;
      var least = 9 * to.a;
      all().forEach(function (mark) {
        var away = Math.max(mark.x - x, x - mark.x - mark.w, 0) + Math.max(mark.y - y, y - mark.y - mark.h, 0);
        if (away < least) { least = away; best = mark; }
      });
      if (best) { show(svg, best, event.clientX, event.clientY); } else { hide(); }
    });
    view.addEventListener("pointerleave", hide);
    view.addEventListener("blur", hide);
    view.addEventListener("keydown", function (event) {
      var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key], last = all().length - 1;
      var moves = view.scrollWidth > view.clientWidth + 1;
      if (event.key === "Escape") { hide(); return; }
      if (event.key === "Home" || event.key === "End") { at = event.key === "Home" ? 0 : last; } else {
        if (!step || event.ctrlKey || event.altKey || event.metaKey || (moves && !event.shiftKey)) { return; }
        at = Math.max(0, Math.min(last, at + step));
      }
      event.preventDefault();
      var mark = all()[at], to = svg.getScreenCTM();
      view.scrollLeft += to.e + to.a * mark.x - view.getBoundingClientRect().left - view.clientWidth / 2;
      show(svg, mark);
      heard.textContent = mark.text;
    });
  });
  addEventListener("scroll", hide, { passive: true });
  addEventListener("beforeprint", function () { each("details", function (part) { part.open = true; }); });
}());
