// Looks at the current slide with all its fragments shown and returns what is wrong, as sentences.
// Sizes are those of the 1280 x 720 canvas, as the window has that size.
() => {
  const section = Reveal.getCurrentSlide();
  section.querySelectorAll(".fragment").forEach(f => f.classList.add("visible"));
  const slide = section.querySelector(".slide"), found = [];
  const box = slide.getBoundingClientRect(), floor = section.querySelector("footer").getBoundingClientRect().top;
  const say = (element, words) => found.push(`${words}: ${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 40)}"`);
  for (const part of [section, slide, ...slide.querySelectorAll(".body, .column, pre, figure, table")]) {
    if (part.scrollHeight > part.clientHeight + 2) say(part, `${part.scrollHeight - part.clientHeight} px too high`);
    if (part.scrollWidth > part.clientWidth + 2) say(part, `${part.scrollWidth - part.clientWidth} px too wide`);
  }
  for (const part of slide.querySelectorAll(".body *")) {
    if (part.closest(".katex-mathml, .katex svg")) continue;  // for screen readers; braces that are cut to size
    const r = part.getBoundingClientRect();
    if (r.width === 0 || r.height === 0) continue;
    if (!part.closest(".katex") && r.bottom > floor + 2) say(part, `${Math.round(r.bottom - floor)} px into the footer`);
    if (r.right > box.right + 2 || r.left < box.left - 2) say(part, "outside the slide");
  }
  for (const picture of slide.querySelectorAll("figure > img, figure > svg")) {
    const r = picture.getBoundingClientRect();
    if (r.height < 150 || r.width < 200) found.push(`a figure is only ${Math.round(r.width)} x ${Math.round(r.height)} px`);
    if (picture.tagName === "IMG" && !picture.naturalWidth) found.push("an image does not load");
    if (!(picture.getAttribute("alt") || picture.getAttribute("aria-label"))) found.push("a figure has no alt text");
  }
  for (const drawing of slide.querySelectorAll("svg.drawing")) {
    const frame = drawing.getBoundingClientRect(), units = drawing.viewBox.baseVal;
    const scale = Math.min(frame.width / units.width, frame.height / units.height);
    for (const text of drawing.querySelectorAll("text")) {
      const size = parseFloat(getComputedStyle(text).fontSize) * scale, b = text.getBBox();
      if (size < 20) say(text, `text of only ${size.toFixed(1)} px in a drawing`);
      if (b.x < units.x || b.x + b.width > units.x + units.width || b.y + b.height > units.y + units.height)
        say(text, "text outside its drawing");
    }
  }
  for (const part of slide.querySelectorAll(".body *")) {
    const own = [...part.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (own && !part.closest("svg, .katex, .math") && parseFloat(getComputedStyle(part).fontSize) < 19.5)
      say(part, "text smaller than 20 px");
  }
  for (const math of slide.querySelectorAll(".math"))
    if (!math.querySelector(".katex")) say(math, "math is not rendered");
  return [...new Set(found)];
}
