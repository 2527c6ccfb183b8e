import functools

from torchcourse_labs.mnist_cnn.receptive_field import solution


def step_by_step(layers):
    field = step = 1
    for kernel, stride in layers:
        field += (kernel - 1) * step
        step *= stride
    return field


def from_the_end(layers):
    return functools.reduce(lambda seen, layer: (seen - 1) * layer[1] + layer[0], layers[::-1], 1)


RIGHT = [step_by_step, from_the_end]

WRONG = {
    None: [
        lambda layers: solution(layers) - 1,
        lambda layers: solution(layers) * layers[0][0] // layers[0][0],
        lambda layers: solution(layers[:1]),
        lambda layers: solution([layer[::-1] for layer in layers]),
    ]
}
