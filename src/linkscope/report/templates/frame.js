// Opens folded parts for printing and for the address, marks the current chapter, and keeps the Tab key off regions that
// do not scroll.

// A printed page has all text and charts, but only the open tables, because all tables can fill a hundred pages.
const open = (all, wanted) => all.forEach((one) => { one.open = wanted; });
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("main details:not([open], .table, .which, .more)")];
  open(opened, true);
});
addEventListener("afterprint", () => open(opened, false));

// The Tab key stops only at regions that scroll. A closed part has no width, so its regions are checked when it opens.
const isFolded = (one) => one.parentElement.closest("details:not([open])");
const markScrollable = (within) => [...within.querySelectorAll(".scroll")].filter((one) => !isFolded(one)).forEach((one) => {
  const more = one.scrollWidth > one.clientWidth + 1;
  one.tabIndex = more ? 0 : -1;
  one.toggleAttribute("data-more", more);
});
markScrollable(document);
addEventListener("resize", () => markScrollable(document));
document.addEventListener("toggle", (event) => markScrollable(event.target), true);

// An address opens the folded parts around its target.
const show = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1).split("?")[0]));
  if (!target) return;
  for (let one = target.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", show);
show();

// The navigation marks the chapter at the top of the window.
const links = [...document.querySelectorAll("nav a")];
const chapters = links.map((link) => document.getElementById(link.hash.slice(1)));
const mark = () => {
  const passed = chapters.filter((one) => one.getBoundingClientRect().top < innerHeight / 3).length;
  links.forEach((link, index) => {
    if (index === Math.max(0, passed - 1)) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  });
};
addEventListener("scroll", mark, { passive: true });
mark();
