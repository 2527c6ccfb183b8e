from support.answers import mutant, mutants

from torchcourse_labs.cifar_cnn.frozen_body import FrozenBody

HEAD, MODE, EVAL = "self.head(self.body(x))", "super().train(mode)", "self.body.eval()"
FREEZE = "body.requires_grad_(False)"

RIGHT = [
    mutant(FrozenBody, ("self.train()", EVAL)),
    # Its weights require gradients, and still nothing reaches them.
    mutant(FrozenBody, (FREEZE, "body"), ("self.body(x)", "self.body(x).detach()")),
    mutant(FrozenBody, (MODE, "self.training = mode; self.head.train(mode)")),
]

WRONG = {
    "statistics_move": [*mutants(FrozenBody, EVAL, "pass"), mutant(FrozenBody, (MODE, "pass"), (EVAL, MODE))],
    "wrong_mode": [
        *mutants(FrozenBody, "self.train()", "pass"),
        *mutants(FrozenBody, MODE, "super().train(False)", "super().train()", "self.head.train(mode)"),
    ],
    "body_learns": [
        *mutants(FrozenBody, FREEZE, "body"),
        mutant(FrozenBody, (FREEZE, "body"), ("self.train()", "self.train(); body.requires_grad = False")),
    ],
    None: [
        lambda body, head: lambda x: head(body(x)),
        *mutants(FrozenBody, "self.body, self.head = body", "import copy; self.body, self.head = copy.deepcopy(body)"),
        *mutants(FrozenBody, "self.train()", "self.train(); self.requires_grad_(False)"),
        *mutants(FrozenBody, "\n        return self\n", "\n"),
        *mutants(FrozenBody, HEAD, "self.body(x)", f"{HEAD}.softmax(1)"),
    ],
}
