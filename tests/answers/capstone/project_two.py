from answers.capstone._training import train, with_states
from support.answers import mutant, mutants

RIGHT = [train, with_states]

WRONG = {
    "deadlock": mutants(train, "dist.barrier()", "dist.get_rank() or dist.barrier()"),
    "unequal_tensors": mutants(train, "dist.barrier()", "dist.all_reduce(torch.zeros(1 + dist.get_rank()))"),
    "returned": mutants(train, "return model", "return"),
    "once": mutants(train, "for rows in batches:", "for rows in list(batches)[:-1]:"),
    "whole_batches": mutants(train, "batch_size // dist.get_world_size()", "batch_size"),
    "same_images": [
        mutant(
            train,
            ("DistributedSampler(train_set, seed=seed)", "DistributedSampler(train_set, 1, 0, seed=seed)"),
            ("batch_size // dist.get_world_size()", "batch_size"),
        )
    ],
    "apart": mutants(train, "replica(images)", "model(images)"),
    "other_images": mutants(train, "seed=seed)", "seed=seed + dist.get_world_size())"),
    "other_weights": mutants(train, "loss.backward()", "(loss * loss.detach() ** dist.get_rank()).backward()"),
    "two_writers": mutants(train, "if dist.get_rank() == 0:", "if True:"),
}
