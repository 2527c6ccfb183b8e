// Notes that are too long for their page become smaller, to nine points. Returns the numbers of the sections where even that
// is not enough.
() => {
  const fits = notes => notes.scrollHeight <= notes.clientHeight;
  return [...document.querySelectorAll("section")].flatMap((section, index) => {
    const notes = section.querySelector(".notes");
    for (let size = 14; size >= 9 && !fits(notes); size -= 0.5) notes.style.fontSize = `${size}pt`;
    return fits(notes) ? [] : [index + 1];
  });
}
