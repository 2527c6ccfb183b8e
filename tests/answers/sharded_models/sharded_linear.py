import torch
import torch.distributed as dist
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.sharded_models.sharded_linear import solution

SCATTER, MEAN = "dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)", "gradient_shard / dist.get_world_size()"
FORWARD, RETURNED, INPUT = "return x @ weight.T", "return gradient_x, ", "gradient_x = gradient_y @ weight"
FIRST = "dist.all_gather_into_tensor(weight, shard)\n        return"
AGAIN = """weight = shard.new_empty(dist.get_world_size() * shard.shape[0], shard.shape[1])
        dist.all_gather_into_tensor(weight, shard)
        gradient_x"""
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
    "deadlock": mutants(solution, SCATTER, f"if dist.get_rank() == 0: {SCATTER}"),
    "other_order": mutants(solution, RETURNED + MEAN, f"return {MEAN}, gradient_x"),
    "no_function": [nn.Linear],
    "outputs_gathered": mutants(solution, FORWARD, f"{PARTS}; return torch.cat(parts, 1)"),
    "sum": mutants(solution, MEAN, "gradient_shard"),
    "own_images_only": mutants(solution, SCATTER, "gradient_shard = (gradient_y.T @ x).chunk(2)[dist.get_rank()]"),
    "weight_kept": [
        mutant(
            solution, (FORWARD, f"ctx.weight = weight; {FORWARD}"), (AGAIN, "weight = ctx.weight\n        gradient_x")
        ),
        *mutants(solution, FORWARD, f"ctx.weight = weight; {FORWARD}"),
    ],
    "all_reduce": mutants(solution, SCATTER, WHOLE),
    "gradient_kept": [
        mutant(
            solution,
            (SCATTER, f"{SCATTER}; gradient_shard = torch.cat([gradient_shard, gradient_shard])[: len(shard)]"),
            (MEAN, "gradient_shard.div_(2)"),
        )
    ],
    None: [
        *mutants(solution, RETURNED + MEAN, "return gradient_x, None", f"return None, {MEAN}"),
        *mutants(solution, FORWARD, "return x @ shard.T", "return x @ weight.flip(0).T", f"{FORWARD}, weight"),
        *mutants(solution, INPUT, f"{INPUT} / 2", f"{INPUT}; dist.all_reduce(gradient_x)"),
        *mutants(solution, SCATTER, f"{SCATTER}; dist.barrier()"),
        *mutants(solution, MEAN, "gradient_shard / 4"),
    ],
}
