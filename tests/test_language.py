"""Text, tokens, and the language model: what chapter 14 relies on. The bounds of a training are in course.toml."""

import math
import re

import pytest
import torch
from torch import nn

from tools import corpus
from tools.course import ROOT
from torchcourse import CourseError, data, models
from torchcourse.commands import cli
from torchcourse.data import tokens as bpe
from torchcourse.models.gpt import Cache
from torchcourse.recipes import language


@pytest.fixture(scope="module")
def tokenizer() -> data.Tokenizer:
    return data.Tokenizer.train(data.text().train[:50_000], 400)


def sharp(vocabulary: int) -> models.GPT:
    """A network whose attention is far from uniform, so that a wrong mask or position shows."""
    torch.manual_seed(0)
    model = models.GPT(vocabulary, width=64, depth=2).eval().requires_grad_(False)
    for weight in model.parameters():
        weight.mul_(5 if weight.ndim == 2 else 1)
    return model


def test_the_course_s_text_holds_out_its_last_chapters_and_no_answer():
    text = data.text()
    assert "# The training loop" in text.train and "# Beyond Python" not in text.train
    assert "# Beyond Python" in text.test and "# A project of your own" in text.test
    assert "BEGIN SOLUTION" not in text.train + text.test and "\x1e" not in text.train + text.test


def test_most_of_the_text_is_what_the_lectures_say_today():
    """Otherwise it's time for `python -m tools.corpus`."""
    known, today = set("\n".join(data.text()).splitlines()), corpus.corpus().splitlines()
    assert sum(line in known for line in today) > 0.8 * len(today)


def test_a_text_of_your_own(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("ä and b\n" * 5000, encoding="utf-8")
    train, test = data.text(path)
    assert train + test == path.read_text(encoding="utf-8") and len(test) == 4000
    for content, words in ((b"short", "at least 10,000"), (b"\xff\xfe" * 10_000, "UTF-8")):
        path.write_bytes(content)
        with pytest.raises(CourseError, match=words):
            data.text(path)
    with pytest.raises(CourseError, match="no file"):
        data.text(tmp_path / "nothing.txt")


def test_text_to_tokens_and_back(tokenizer):
    for text in (data.text().test, "", " ", "naïve 🙂\n\n\t  x", "".join(map(chr, range(1, 3000)))):
        tokens = tokenizer.encode(text)
        assert tokens.dtype == torch.int64 and tokenizer.decode(tokens.tolist()) == text
    assert len(tokenizer.encode(data.text().test)) < 0.7 * len(data.text().test)
    assert "�" in tokenizer.decode(list("🙂".encode())[:2])


def test_merges_are_those_of_tiktoken(tokenizer):
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {piece: token for token, piece in enumerate(tokenizer.bytes)}
    words = bpe.WORDS.pattern
    library = tiktoken.Encoding("course", pat_str=words, mergeable_ranks=ranks, special_tokens={})
    assert library.encode_ordinary(data.text().test) == tokenizer.encode(data.text().test).tolist()


def test_a_place_sees_what_came_before_it_and_nothing_else():
    model, tokens = sharp(50), torch.randint(50, (1, 12))
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 50
    same = (model(tokens) == model(changed)).all(-1)[0]
    assert same.tolist() == [True] * 6 + [False] * 6
    swapped = tokens[:, [1, 0, *range(2, 12)]]
    assert not torch.allclose(model(tokens)[0, -1], model(swapped)[0, -1]), "positions count"


def test_with_caches_only_new_tokens_are_computed_and_logits_are_the_same():
    model, tokens, rows = sharp(50), torch.randint(50, (2, 20)), []
    whole = model(tokens)
    model.blocks[0].up.register_forward_pre_hook(lambda layer, given: rows.append(given[0].shape[1]))
    caches = [Cache() for _ in model.blocks]
    parts = [model(part, caches) for part in tokens.split([7, 5, *[1] * 8], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)
    assert rows == [7, 5] + [1] * 8 and len(caches[0]) == 20


def test_padding_on_the_left_changes_nothing():
    model, tokens = sharp(50), torch.randint(50, (2, 9))
    padded, real = nn.functional.pad(tokens, (4, 0)), torch.arange(13) >= 4
    torch.testing.assert_close(model(padded, real=real.expand(2, -1))[:, 4:], model(tokens), atol=1e-4, rtol=1e-4)


def test_training_learns_and_bits_per_byte_are_counted_on_bytes(tokenizer):
    torch.manual_seed(0)
    text, model = data.text().train[:50_000], models.GPT(len(tokenizer), width=64, depth=2)
    tokens = tokenizer.encode(text)
    before = language.bits_per_byte(model, tokenizer, text)
    assert abs(before - math.log2(400) * len(tokens) / len(text.encode())) < 0.1  # as good as guessing
    losses = language.train(model, tokens, 40)
    assert len(losses) == 40 and language.bits_per_byte(model, tokenizer, text) < 0.8 * before


def test_the_model_that_comes_with_the_course(tokenizer):
    model, tokens = language.pretrained()
    assert language.FILE.stat().st_size < 3e6
    assert sum(p.numel() for p in model.parameters()) == 2048 * 128 + 4 * 12 * 128**2 + 9 * 128
    assert language.bits_per_byte(model, tokens, data.text().test) < 2.1
    first, again = (language.write(model, tokens, "The loss", 20, seed=1) for _ in range(2))
    assert first == again != language.write(model, tokens, "The loss", 20, seed=2)
    assert language.write(model, tokens, "loss.backward()\noptimizer.", 1, temperature=0).endswith("step")


def test_the_lecture_writes_out_the_recipe_of_the_package():
    """What it tells about the training then holds for the model that comes with the course."""
    names = {"torch": torch, "math": math}
    source = (ROOT / "notebooks" / "14_language_model.md").read_text(encoding="utf-8")
    exec(re.search(r"^def recipe.*?(?=^```)", source, re.DOTALL | re.MULTILINE)[0], names)
    found = []
    for make in (names["recipe"], language.optimizer_for):
        optimizer, schedule = make(models.GPT(300, width=64, depth=2), 20)
        groups = [(len(group["params"]), group["weight_decay"], group["betas"]) for group in optimizer.param_groups]
        rates = []
        for _ in range(20):
            rates.append(schedule.get_last_lr())
            optimizer.step()
            schedule.step()
        found.append((groups, rates))
    assert found[0] == found[1]


def test_plan_says_what_writing_needs(capsys):
    assert cli.main(["plan", "6.7B", "--cache", "8192", "--blocks", "32", "--width", "4096"]) == 0
    table = capsys.readouterr().out
    assert "13.40" in table and "4.29" in table
