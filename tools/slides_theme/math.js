// Turns TeX into math. It comes before reveal.js starts, which then measures slides that have their final size.
for (const math of document.querySelectorAll(".math"))
  try {
    katex.render(math.textContent, math, { displayMode: math.classList.contains("display") });
  } catch (error) {
    console.error(error.message);  // the TeX stays readable on the slide
  }
