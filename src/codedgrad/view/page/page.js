"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)");
  const config = { displayModeBar: false, showTips: false };

  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // What every figure has in common; its own settings win.
  const axis = (own) => ({
    gridcolor: colour("--grid"),
    linecolor: colour("--line"),
    zeroline: false,
    ticks: "outside",
    tickcolor: colour("--line"),
    ...own,
    title: { standoff: 8, ...own.title },
  });
  const themed = (layout, height) => ({
    ...layout,
    height,
    autosize: true,
    showlegend: false,
    margin: { l: 58, r: 12, t: 10, b: 46 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    dragmode: touch.matches ? false : "zoom",
    font: {
      family: getComputedStyle(document.body).fontFamily,
      size: 13,
      color: colour("--text"),
    },
    hoverlabel: {
      bgcolor: colour("--card"),
      bordercolor: colour("--line"),
      font: { color: colour("--text"), size: 13 },
    },
    xaxis: axis(layout.xaxis),
    yaxis: axis(layout.yaxis),
  });

  const logarithmic = { type: "log", dtick: "D2", tickformat: "~g" };
  const draw = (plot) => {
    const { data, layout, height, log } = figures[Number(plot.dataset.figure)];
    const own = log ? { ...layout, yaxis: { ...layout.yaxis, ...logarithmic } } : layout;
    return Plotly.react(plot, data, themed(own, height), config);
  };

  const plots = [...document.querySelectorAll(".plot")];
  const drawn = plots.map(draw);
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) Plotly.Plots.resize(target);
  });
  plots.forEach((plot) => resized.observe(plot));
  dark.addEventListener("change", () => plots.forEach(draw));

  for (const button of document.querySelectorAll(".choice button")) {
    button.addEventListener("click", () => {
      const plot = document.getElementById(button.dataset.plot);
      figures[Number(plot.dataset.figure)].log = button.dataset.log === "yes";
      for (const other of button.parentElement.children)
        other.setAttribute("aria-pressed", String(other === button));
      draw(plot);
    });
  }
  Promise.all(drawn).then(() => (document.body.dataset.drawn = plots.length));
})();
