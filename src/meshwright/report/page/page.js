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
  addEventListener("beforeprint", function () { each("details", function (part) { part.open = true; }); });
}());
