"""The size formula: at how many places a window fits."""

from labcheck.authoring import Exercise, Inputs, Spec, looks_like


def draw(rng: Inputs) -> list[tuple]:
    """Many places, the window as wide as the image, a window that ends where the image ends, and the defaults."""
    many = [(rng.size(20, 60), rng.size(5, 9), rng.size(2, 4), rng.size(3, 8)) for _ in range(4)]
    return [*many, (7, 7, 2, 0), (23, 5, 3), (25, 5, 3), (28, 3)]


def solution(n: int, kernel: int, stride: int = 1, padding: int = 0) -> int:
    return (n + 2 * padding - kernel) // stride + 1


exercise = Exercise(
    title="How large is the output?",
    minutes=4,
    difficulty=1,
    points=1,
    takeaway="Count the places where the window fits: the same formula holds for convolution and pooling.",
    hints=(
        "How far can the window's left edge move? The image is n + 2·padding wide, and the window covers `kernel`.",
        "Count the whole strides that fit into that distance, and add 1 for the first place, which needs no move.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        look="how far the window can move, how many whole strides that is (`//`), and the place where it starts",
        says=[
            looks_like(
                "one_short",
                "You are one short: the first place counts, too, where the window has not moved yet.",
                lambda n, kernel, stride=1, padding=0: (n + 2 * padding - kernel) // stride,
                lambda n, kernel, stride=1, padding=0: (n + 2 * padding - kernel + 1) // stride,
                look="add 1 after the division, not before",
            ),
            looks_like(
                "padding",
                "Your formula forgets the padding, subtracts it, or adds it once: there are zeros on both sides.",
                lambda n, kernel, stride=1, padding=0: (n + padding - kernel) // stride + 1,
                lambda n, kernel, stride=1, padding=0: (n - kernel) // stride + 1,
                lambda n, kernel, stride=1, padding=0: (n - 2 * padding - kernel) // stride + 1,
            ),
            looks_like(
                "rounded_up",
                "Round down: a window that would stick out does not count.",
                lambda n, kernel, stride=1, padding=0: -(-(n + 2 * padding - kernel) // stride) + 1,
                lambda n, kernel, stride=1, padding=0: round((n + 2 * padding - kernel) / stride) + 1,
            ),
            looks_like(
                "no_stride",
                "Your formula forgets the stride: the window moves by more than one pixel.",
                lambda n, kernel, stride=1, padding=0: n + 2 * padding - kernel + 1,
            ),
            looks_like(
                "order",
                "Your formula divides too early: add the padding and subtract the kernel first, in parentheses.",
                lambda n, kernel, stride=1, padding=0: n + 2 * padding - kernel // stride + 1,
                lambda n, kernel, stride=1, padding=0: (n + 2 * padding) // stride - kernel + 1,
            ),
        ],
    ),
)
