from support.answers import mutant, mutants

from torchcourse_labs.mixed_precision.safe_loss import solution

CAST, POWER = "features.float()", "power = features.float().square().mean(dim=1, keepdim=True)"

RIGHT = [
    mutant(solution, (POWER, f"with torch.autocast('cpu', enabled=False): {POWER}")),
    mutant(solution, (CAST, "features"), ("encoder(images)", "encoder(images).float()")),
    mutant(
        solution,
        (POWER, "power = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=torch.float32)"),
        ("power.sqrt()", "(power / features.shape[1] ** 0.5)"),
    ),
]

WRONG = {
    "cast_weights": mutants(solution, "encoder(images)", "encoder.half()(images)"),
    "other_dtype": mutants(solution, "dtype=torch.float16", "dtype=torch.bfloat16", "enabled=False"),
    "overflow": [
        *mutants(solution, f"{CAST}.square()", "features.square()", "features.square().float()"),
        mutant(solution, (CAST, "features"), ("features = encoder(images)", "features = encoder(images) / 512")),
    ],
    None: [
        *mutants(solution, CAST, "features.double()", "features.detach().float()"),
        *mutants(solution, "0.01 * penalty", "0.01 * penalty.item()"),
        *mutants(solution, "return", "loss =", "return labels,"),
        *mutants(solution, " + 0.01 * penalty", ""),
    ],
}
