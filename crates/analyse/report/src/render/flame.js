// Zoom, search, and the line that tells the frame under the pointer.
(function () {
  var svg = document.currentScript.parentNode, W = 1200, by = function (id) {
    return svg.querySelector("#" + id);
  };
  var frames = [].map.call(by("frames").children, function (g) {
    var r = g.querySelector("rect"), title = g.querySelector("title").textContent;
    return { g: g, r: r, t: g.querySelector("text"), title: title, name: title.split("\n")[0],
      x: +r.getAttribute("x"), w: +r.getAttribute("width"), y: +r.getAttribute("y") };
  });
  function show(x, w, y) {
    frames.forEach(function (f) {
      var above = f.y < y && f.x <= x + 0.02 && f.x + f.w >= x + w - 0.02;
      var inside = f.y >= y && f.x >= x - 0.02 && f.x + f.w <= x + w + 0.02;
      f.g.style.display = above || inside ? "" : "none";
      var left = above ? 0 : (f.x - x) * W / w, width = above ? W : f.w * W / w;
      f.r.setAttribute("x", left); f.r.setAttribute("width", width);
      f.r.style.opacity = above ? 0.5 : 1;
      f.t.setAttribute("x", left + 3);
      var room = Math.floor(width / 7.3);
      f.t.textContent = room < 3 ? "" : f.name.length <= room ? f.name
        : f.name.slice(0, room - 1) + "\u2026";
    });
  }
  function search() {
    var text = prompt("Part of a function's name:", "");
    if (text === null) return;
    frames.forEach(function (f) {
      var hit = text !== "" && f.name.toLowerCase().indexOf(text.toLowerCase()) >= 0;
      f.r.style.stroke = hit ? "#40f" : ""; f.r.style.strokeWidth = hit ? 2 : "";
    });
  }
  frames.forEach(function (f) {
    f.g.style.cursor = "pointer";
    f.g.addEventListener("click", function () { show(f.x, f.w, f.y); });
    f.g.addEventListener("mouseover", function () {
      by("pointed").textContent = f.title.replace("\n", ": ");
    });
  });
  by("back").addEventListener("click", function () { show(0, W, 0); });
  by("find").addEventListener("click", search);
  window.addEventListener("keydown", function (e) {
    if ((e.ctrlKey || e.metaKey) && e.key === "f") { e.preventDefault(); search(); }
  });
})();
