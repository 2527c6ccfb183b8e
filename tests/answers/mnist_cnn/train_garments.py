from support.answers import mutant, mutants

from torchcourse_labs.mnist_cnn.train_garments import solution

NETWORK, STEP, RETURNED = "SmallNet()", "optimizer.step()", "return model"
MLP = "nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))"
SCHEDULER = "        scheduler.step()"

RIGHT = [
    mutant(solution, (NETWORK, MLP), (RETURNED, "return model.eval()")),
    mutant(
        solution,
        ("Adam(model.parameters(), lr=0.01)", "SGD(model.parameters(), 0.1, 0.9)"),
        ("0.01, total", "0.1, total"),
    ),
]

WRONG = {
    "softmax": mutants(solution, NETWORK, "nn.Sequential(SmallNet(), nn.Softmax(1))"),
    "more_steps": [
        mutant(solution, ("in batches", "in 2 * list(batches)"), (SCHEDULER, "")),
        *mutants(solution, "in batches", "in 80 * [(torch.ones(9, 1, 28, 28), torch.arange(9))]"),
    ],
    "few_steps": [
        *mutants(solution, STEP, "break", "optimizer.zero_grad(); optimizer.step()"),
        *mutants(solution, "    return model", "        return model", "    return SmallNet()"),
        *mutants(solution, "in batches", "in [*batches][:70]"),
        *mutants(solution, "for images", "batches = iter(batches); next(batches)\n    for images"),
    ],
    "linear": mutants(solution, NETWORK, "nn.Sequential(nn.Flatten(), nn.Linear(784, 10))"),
    None: [
        *mutants(solution, RETURNED, "return model.state_dict()", "return nn.Flatten()"),
        *mutants(solution, "CycleLR(optimizer, 0.01", "CycleLR(optimizer, 1e6", "CycleLR(optimizer, 1e-7"),
        *mutants(solution, "model.train()", "[*batches]"),
    ],
}
