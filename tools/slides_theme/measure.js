// Looks at the current slide with all its fragments shown and returns what is wrong, as sentences.
// Sizes are those of the 1280 x 720 canvas, as the window has that size.
() => {
  // Every piece of text that is seen, those of drawings and math included.
  function* texts(root) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const parent = walker.currentNode.parentElement;
      if (walker.currentNode.textContent.trim() && !parent.closest(".katex-mathml, style, title, desc") &&
          parent.checkVisibility({ visibilityProperty: true, opacityProperty: true })) yield walker.currentNode;
    }
  }
  // Contrast after WCAG 2 of a text with what is painted below it, from computed styles; words where that cannot be told.
  function contrast(text) {
    const parse = color => {
      const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
      return { rgb: [r, g, b], a };
    };
    const over = (top, below) => top.rgb.map((c, i) => c * top.a + below[i] * (1 - top.a));
    const light = rgb => {
      const [r, g, b] = rgb.map(c => c / 255).map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const range = document.createRange();
    range.selectNodeContents(text);
    const r = [...range.getClientRects()].find(r => r.width && r.height);
    if (!r) return Infinity;
    // What lies under the middle of its first line, from the top down to the first layer that hides all others.
    const layers = [];
    for (const element of document.elementsFromPoint(r.x + r.width / 2, r.y + r.height / 2)) {
      const style = getComputedStyle(element), shape = element.closest("svg") && element.tagName !== "svg";
      if (element.matches("text, tspan")) continue;
      const paint = shape ? style.fill : style.backgroundColor;
      if (element.matches("img, image") || style.backgroundImage !== "none" || paint.startsWith("url"))
        return "text over a picture or a gradient, where its contrast cannot be told";
      if (paint === "none") continue;
      const layer = parse(paint);
      layer.a *= shape ? style.fillOpacity : 1;
      layers.push(layer);
      if (layer.a === 1) break;
    }
    const ground = layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
    const parent = text.parentElement, ink = parse(getComputedStyle(parent)[parent.closest("svg") ? "fill" : "color"]);
    for (let e = parent; e; e = e.parentElement) ink.a *= getComputedStyle(e).opacity;
    const [low, high] = [light(over(ink, ground)), light(ground)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }
  const section = Reveal.getCurrentSlide();
  section.querySelectorAll(".fragment").forEach(f => f.classList.add("visible"));
  const slide = section.querySelector(".slide"), found = [];
  const box = slide.getBoundingClientRect(), floor = section.querySelector("footer").getBoundingClientRect().top;
  const say = (element, words) => found.push(`${words}: ${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 40)}"`);
  for (const part of [section, slide, ...slide.querySelectorAll(".body, .column, pre, figure, table, footer")]) {
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
    const alt = picture.getAttribute("alt") || picture.getAttribute("aria-label") || "";
    const plain = element => (element?.textContent ?? "").toLowerCase().replace(/[^a-z0-9]+/g, " ").trim();
    const said = [picture.parentElement.querySelector("figcaption"), slide.querySelector("h1, h2")].map(plain);
    if (!alt) found.push("a figure has no alt text");
    else if (alt.split(/\s+/).length < 4) found.push(`alt text of fewer than four words: "${alt}"`);
    else if (said.includes(plain({ textContent: alt }))) found.push(`alt text that only repeats caption or heading: "${alt}"`);
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
  const least = slide.classList.contains("dense") ? 22 : 24;
  for (const code of slide.querySelectorAll(".body pre, .body pre *, .body code")) {
    const size = parseFloat(getComputedStyle(code).fontSize), wanted = code.closest("pre") ? least : 22;
    if (size < wanted) say(code, `code of only ${size.toFixed(1)} px, it needs ${wanted}`);
  }
  for (const text of texts(slide)) {
    const ratio = contrast(text);
    if (typeof ratio === "string") say(text.parentElement, ratio);
    else if (ratio < 4.5) say(text.parentElement, `contrast of only ${ratio.toFixed(2)}, it needs 4.5`);
  }
  for (const math of slide.querySelectorAll(".math"))
    if (!math.querySelector(".katex")) say(math, "math is not rendered");
  return [...new Set(found)];
}
