"""What chapter 14 reads: prose and code of the lectures before it, and a model trained on them.

python -m tools.corpus      writes src/torchcourse/data/lectures.txt.xz and src/torchcourse/recipes/language.safetensors

A snapshot, made before a release and not with every build: losses stay comparable while the lectures go on changing.
"""

import json
import lzma
import re

import torch
from safetensors.torch import save_file

from tools import build, course
from tools.course import ROOT
from torchcourse import data
from torchcourse.data import Text, Tokenizer
from torchcourse.data.corpus import FILE, MARK
from torchcourse.models import GPT
from torchcourse.recipes import language

SRC = ROOT / "src" / "torchcourse"
VOCABULARY, STEPS = 2048, 4000
LAST = "13"  # the last chapter in it
TAGS = re.compile(r"</?\w[^>\n]*>")
IMAGES, LINKS = re.compile(r"!\[[^\]]*\]\([^)]*\)"), re.compile(r"\[([^\]]*)\]\([^)]*\)")
TABLE = re.compile(r"^\|.*\n?", re.MULTILINE)


def prose(markdown: str) -> str:
    """Paragraphs of one line each, without tables, pictures, tags, and the addresses of links."""
    text = LINKS.sub(r"\1", TAGS.sub("", IMAGES.sub("", TABLE.sub("", markdown))))
    parts = re.split(r"(```.*?```|\$\$.*?\$\$)", text, flags=re.DOTALL)
    parts[::2] = [re.sub(r"(?<=\S)[ \t]*\n(?!\s|#|[*\->] |\d+\. )", " ", part) for part in parts[::2]]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip()


def chapter(each: course.Chapter) -> str:
    """A chapter's lecture, or its lab without answers if it has no lecture; code between fences."""
    cells = build.edition(each, "lecture" if each.lecture_minutes else "lab").cells[2:]  # not title and set-up
    texts = [f"# {each.title}", each.promise]
    for cell in cells:
        texts.append(prose(cell.source) if cell.cell_type == "markdown" else f"```python\n{cell.source.strip()}\n```")
    return "\n\n".join(filter(None, texts)) + "\n\n"


def corpus() -> str:
    """All chapters, each after a line with its number."""
    return "".join(f"{MARK}{each.number}\n{chapter(each)}" for each in course.chapters() if each.number <= LAST)


def pretrain(text: Text) -> tuple[GPT, Tokenizer]:
    """The network of chapter 14, trained six times as long: five to ten minutes on two cores."""
    tokenizer = Tokenizer.train(text.train, VOCABULARY)
    torch.manual_seed(0)
    model = GPT(VOCABULARY)
    language.train(model, tokenizer.encode(text.train), STEPS, lr=3e-3, decay=1.0)
    return model, tokenizer


def main() -> None:
    text = corpus()
    path = SRC / "data" / FILE
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(text.encode()):,} bytes of text, {path.stat().st_size:,} in {path.relative_to(ROOT)}")
    model, tokenizer = pretrain(data.text())
    weights = {name: weight.bfloat16() for name, weight in model.state_dict().items() if name != "head.weight"}
    about = {"vocabulary": str(VOCABULARY), "merges": json.dumps(tokenizer.merges)}
    save_file(weights, language.FILE, about)
    bits = language.bits_per_byte(*language.pretrained(), data.text().test)
    print(f"{bits:.2f} bits per byte held out; {language.FILE.stat().st_size:,} in {language.FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
