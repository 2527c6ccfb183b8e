import torch
import torch.distributed as dist
from support.answers import mutant, mutants

from torchcourse_labs.sharded_models.sharded_linear import solution

SCATTER, MEAN = "dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)", "gradient_shard / dist.get_world_size()"
FORWARD, RETURNED, INPUT = "return x @ weight.T", "return gradient_x, ", "gradient_x = gradient_y @ weight"
PARTS = "parts = [x.new_empty(len(x), len(shard)) for _ in range(2)]; dist.all_gather(parts, x @ shard.T)"
WHOLE = "g = gradient_y.T @ x; dist.all_reduce(g); gradient_shard = g.chunk(2)[dist.get_rank()]"


class ByLists(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard):
        ctx.x, ctx.shard = x, shard.detach()
        parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, shard.contiguous())
        return torch.cat([x @ part.T for part in parts], 1)

    @staticmethod
    def backward(ctx, gradient_y):
        parts = [torch.empty_like(ctx.shard) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, ctx.shard)
        own = torch.empty_like(ctx.shard)
        dist.reduce_scatter(own, [part.T @ ctx.x / len(parts) for part in gradient_y.chunk(len(parts), 1)])
        return gradient_y @ torch.cat(parts), own


RIGHT = [ByLists, mutant(solution, (SCATTER, SCATTER.replace(" @ x", " @ x / 2")), (MEAN, "gradient_shard"))]

WRONG = {
    "sum": mutants(solution, MEAN, "gradient_shard"),
    "kept": [
        *mutants(solution, FORWARD, f"ctx.weight = weight; {FORWARD}"),
        mutant(
            solution,
            (SCATTER, f"{SCATTER}; gradient_shard = torch.cat([gradient_shard, gradient_shard])[: len(shard)]"),
            (MEAN, "gradient_shard.div_(2)"),
        ),
    ],
    None: [
        *mutants(solution, RETURNED + MEAN, f"return {MEAN}, gradient_x"),
        *mutants(solution, FORWARD, "return x @ shard.T", f"{PARTS}; return torch.cat(parts, 1)"),
        *mutants(solution, INPUT, f"{INPUT}; dist.all_reduce(gradient_x)"),
        *mutants(solution, SCATTER, "gradient_shard = (gradient_y.T @ x).chunk(2)[dist.get_rank()]", WHOLE),
    ],
}
