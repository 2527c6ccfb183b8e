// Notes that are too long for their page become smaller, to nine points. Returns the numbers of the sheets where even that
// is not enough.
() => {
  const fits = notes => notes.scrollHeight <= notes.clientHeight;
  return [...document.querySelectorAll(".sheet")].flatMap((sheet, index) => {
    const notes = sheet.querySelector(".notes");
    for (let size = 14; size >= 9 && !fits(notes); size -= 0.5) notes.style.fontSize = `${size}pt`;
    return fits(notes) ? [] : [index + 1];
  });
}
