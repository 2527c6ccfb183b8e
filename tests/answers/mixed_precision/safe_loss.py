from support.answers import mutant, mutants

from torchcourse_labs.mixed_precision.safe_loss import solution

CAST, POWER = "features.float()", "power = features.float().square().mean(dim=1, keepdim=True)"
AUTOCAST, RETURN = "torch.autocast(images.device.type, dtype=torch.float16)", "return F.cross_entropy(logits, labels)"

RIGHT = [
    mutant(solution, (POWER, f"with torch.autocast('cpu', enabled=False): {POWER}")),
    mutant(solution, (CAST, "features"), ("encoder(images)", "encoder(images).float()")),
    mutant(
        solution,
        (POWER, "power = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=torch.float32)"),
        ("power.sqrt()", "(power / features.shape[1] ** 0.5)"),
    ),
    mutant(solution, ("= head(features / power.sqrt())", "= head(features / power.sqrt()).float()")),
    mutant(solution, (POWER, f"{POWER}.to(torch.float32)"), (CAST, "features.to(dtype=torch.float32)")),
]

WRONG = {
    "cast_weights": [
        *mutants(solution, "encoder(images)", "encoder.half()(images)"),
        mutant(
            solution,
            (AUTOCAST, "torch.enable_grad()"),
            ("encoder(images)", "encoder.half()(images.half()); head.half()"),
        ),
    ],
    "other_dtype": mutants(solution, "dtype=torch.float16", "dtype=torch.bfloat16", "enabled=False")
    + mutants(solution, AUTOCAST, "torch.enable_grad()", "torch.autocast('cuda', dtype=torch.float16)"),
    "overflow": mutants(solution, f"{CAST}.square()", "features.square()", "features.square().float()")
    + mutants(solution, POWER, f"with torch.autocast('cpu', enabled=False): {POWER.replace('.float()', '')}")
    + [mutant(solution, (CAST, "features"), ("features = encoder(images)", "features = encoder(images) / 512"))],
    "other_gradient": mutants(solution, CAST, "features.detach().float()")
    + mutants(solution, "with ", "with torch.no_grad(), ")
    + mutants(solution, "0.01 * penalty", "0.01 * penalty.item()"),
    None: [
        *mutants(solution, CAST, "features.double()"),
        *mutants(solution, "head(features / power.sqrt())", "features / power.sqrt()"),
        *mutants(solution, "return", "loss =", "return labels,"),
        *mutants(solution, " + 0.01 * penalty", "", " + penalty"),
        *mutants(solution, "mean(dim=1, ", "sum(dim=1, ", "mean(dim=0, "),
        *mutants(solution, "encoder(images)", "encoder(images).clamp(-250, 250)"),
        mutant(solution, (RETURN, "return (F.cross_entropy(logits, labels)"), ("penalty\n", "penalty).double()\n")),
    ],
}
