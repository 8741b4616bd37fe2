(function () {
  "use strict";
  var root = document.documentElement, toggle = document.getElementById("theme");
  function stored(value) {
    try {
      if (value) localStorage.setItem("dlperf-theme", value);
      return localStorage.getItem("dlperf-theme");
    } catch (error) { return null; } // pages from disk may have no storage
  }
  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function show(theme) {
    if (theme) root.dataset.theme = theme;
    toggle.setAttribute("aria-pressed", String(isDark()));
  }
  show(stored());
  toggle.hidden = false;
  toggle.addEventListener("click", function () {
    var theme = isDark() ? "light" : "dark";
    stored(theme);
    show(theme);
  });

  function order(a, b, number) {
    if (a === "" || b === "") return a === b ? 0 : NaN; // what is absent stays below
    return number ? a - b : a.localeCompare(b);
  }
  document.querySelectorAll("table.sortable").forEach(function (table) {
    var body = table.tBodies[0];
    if (body.rows.length < 2) return;
    Array.from(table.tHead.rows[0].cells).forEach(function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.title = head.title || table.dataset.hint;
      while (head.firstChild) button.appendChild(head.firstChild);
      head.appendChild(button);
      button.addEventListener("click", function () {
        var down = head.getAttribute("aria-sort") === "ascending";
        var number = head.classList.contains("num");
        var rows = Array.from(body.rows).map(function (row, place) {
          return { row: row, place: place, key: row.cells[column].dataset.v || "" };
        });
        rows.sort(function (a, b) {
          var found = order(a.key, b.key, number);
          if (found !== found) return a.key === "" ? 1 : -1;
          return (down ? -found : found) || a.place - b.place;
        });
        rows.forEach(function (item) { body.appendChild(item.row); });
        Array.from(head.parentNode.cells).forEach(function (other) {
          other.removeAttribute("aria-sort");
        });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
      });
    });
  });

  // A chart becomes live once somebody is about to use it: until then it is a picture, or, where
  // there are hundreds, nothing. Expressions are interpreted, for the page forbids itself `eval`.
  var known = JSON.parse(document.getElementById("charts").textContent);
  function specification(number) {
    var own = known.charts[number], spec = {};
    Object.keys(own).forEach(function (key) {
      spec[key] = JSON.parse(JSON.stringify(known.parts[own[key]]));
    });
    spec.params = [{ name: "hidden", value: [] }];
    spec.layer.forEach(function (layer) {
      layer.transform = (layer.transform || []).concat({ filter: "indexof(hidden, datum.line) < 0" });
    });
    spec.layer[spec.layer.length - 1].params = [
      { name: "view", bind: "scales", select: { type: "interval", // a wheel alone scrolls the page
        zoom: "wheel![event.ctrlKey || event.shiftKey]",
        translate: "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!" } }
    ];
    return spec;
  }
  // An entry of the legend is a button that hides its line, or shows it again.
  function toggles(place, names, view) {
    var hidden = [];
    place.querySelectorAll(".role-legend-entry .role-scope > g").forEach(function (entry, n) {
      function toggle() {
        var shows = hidden.indexOf(names[n]) >= 0;
        hidden = shows ? hidden.filter(function (name) { return name !== names[n]; })
          : hidden.concat(names[n]);
        entry.setAttribute("aria-pressed", String(shows));
        view.signal("hidden", hidden).runAsync();
      }
      entry.closest(".role-legend").removeAttribute("aria-hidden");
      entry.setAttribute("role", "button");
      entry.setAttribute("tabindex", "0");
      entry.setAttribute("aria-label", names[n]);
      entry.setAttribute("aria-pressed", "true");
      entry.addEventListener("click", toggle);
      entry.addEventListener("keydown", function (event) {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault(); // a space scrolls the page
        toggle();
      });
    });
  }
  function enliven(box) {
    if (box.dataset.live || !box.clientWidth) return null;
    box.dataset.live = "loading";
    var spec = specification(Number(box.dataset.chart)), place = document.createElement("div"), width = spec.width;
    spec.height = Math.round(spec.height * box.clientWidth / spec.width);
    spec.width = box.clientWidth;
    [spec].concat(spec.layer).forEach(function (part) {
      Object.values(part.encoding || {}).forEach(function (channel) {
        if (channel.legend) channel.legend.columns = Math.max(1, Math.floor(channel.legend.columns * spec.width / width));
      });
    });
    return vegaEmbed(place, spec, { ast: true, renderer: "svg", actions: false, defaultStyle: false,
      tooltip: { disableDefaultStyle: true } }).then(function (made) {
      box.replaceChildren(place);
      toggles(place, spec.encoding.stroke.scale.domain, made.view);
      box.dataset.live = "yes";
    });
  }
  document.querySelectorAll("figure .plot").forEach(function (box) {
    ["pointerenter", "focusin"].forEach(function (name) {
      box.addEventListener(name, function () { enliven(box); });
    });
  });
  document.querySelectorAll("details").forEach(function (item) {
    item.addEventListener("toggle", function () {
      if (item.open) item.querySelectorAll(".plot").forEach(enliven);
    });
  });

  var opened = [];
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details:not([open])").forEach(function (item) {
      item.open = true;
      item.querySelectorAll(".plot").forEach(enliven);
      opened.push(item);
    });
  });
  addEventListener("afterprint", function () {
    opened.forEach(function (item) { item.open = false; });
    opened = [];
  });
})();
