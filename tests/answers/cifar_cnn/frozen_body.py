from support.answers import mutant, mutants

from torchcourse_labs.cifar_cnn.frozen_body import FrozenBody

HEAD, MODE, EVAL, FREEZE = (
    "self.head(features)",
    "super().train(mode)",
    "self.body.eval()",
    "body.requires_grad_(False)",
)

RIGHT = [
    mutant(FrozenBody, ("self.train()", EVAL)),
    # Its weights require gradients, and still nothing reaches them.
    mutant(FrozenBody, (FREEZE, "body"), ("self.body(x)", "self.body(x).detach()")),
    mutant(
        FrozenBody,
        (MODE, "self.training = mode; self.head.train(mode)"),
        ("features = self.body(x)", "with __import__('torch').no_grad(): features = self.body(x)"),
    ),
]

COPIES = "import copy; self.body, self.head = copy.deepcopy(body)"

WRONG = {
    "not_kept": [
        *mutants(FrozenBody, "self.body, self.head = body", COPIES),
        mutant(FrozenBody, ("self.body, ", "self.net, "), (EVAL, "self.net.eval()"), ("self.body(x)", "self.net(x)")),
    ],
    "statistics_move": [*mutants(FrozenBody, EVAL, "pass"), mutant(FrozenBody, (MODE, "pass"), (EVAL, MODE))],
    "new_in_train_mode": mutants(FrozenBody, "self.train()", "pass"),
    "wrong_mode": [
        *mutants(FrozenBody, MODE, "super().train(False)", "super().train()", "self.head.train(mode)"),
        *mutants(FrozenBody, MODE, "super().train(mode and self.training)"),
        *mutants(FrozenBody, EVAL, "self.body.train(not mode)"),
        mutant(
            FrozenBody,
            (EVAL, "[m.eval() for m in self.body if 'Norm' in type(m).__name__]"),
            ("self.train()", "body.eval()"),
        ),
    ],
    "body_learns": [
        *mutants(FrozenBody, FREEZE, "body"),
        mutant(FrozenBody, (FREEZE, "body"), ("self.train()", "self.train(); body.requires_grad = False")),
    ],
    "head_does_not_learn": mutants(FrozenBody, "self.train()", "self.train(); self.requires_grad_(False)")
    + mutants(FrozenBody, "return self.head", "with __import__('torch').no_grad(): return self.head"),
    "returns_nothing": mutants(FrozenBody, "\n        return self\n", "\n"),
    None: [
        lambda body, head: lambda x: head(body(x)),
        *mutants(FrozenBody, "super().__init__()", "pass"),
        *mutants(FrozenBody, MODE, "self.train(mode)"),
        *mutants(FrozenBody, HEAD, f"{HEAD}, features", "features", f"{HEAD}.softmax(1)", f"{HEAD}.argmax(1)"),
        *mutants(FrozenBody, HEAD, "self.head(features.relu() + 1)"),
    ],
}
