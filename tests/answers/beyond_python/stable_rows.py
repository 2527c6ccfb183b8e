from support.answers import mutants

from torchcourse_labs.beyond_python.stable_rows import solution


def by_strides():
    return """
    STD_TORCH_CHECK(numbers.scalar_type() == ScalarType::Char && scales.scalar_type() == ScalarType::Float, "dtypes");
    STD_TORCH_CHECK(numbers.dim() == 2 && scales.dim() == 1 && scales.numel() == numbers.size(0), "sizes");
    auto result = torch::stable::new_empty(numbers, numbers.sizes(), ScalarType::Float);
    auto from = numbers.const_data_ptr<int8_t>();
    auto factor = scales.const_data_ptr<float>();
    auto to = result.mutable_data_ptr<float>();
    for (int64_t i = 0; i < numbers.size(0); ++i)
        for (int64_t j = 0; j < numbers.size(1); ++j)
            *to++ = factor[i * scales.stride(0)] * from[i * numbers.stride(0) + j * numbers.stride(1)];
    return result;
    """


CHECK = 'STD_TORCH_CHECK(scales.size(0) == numbers.size(0), "there must be one scale for each row");'
EQUAL = "scales.size(0) == numbers.size(0)"
RIGHT = [by_strides]

WRONG = {
    "crash": mutants(solution, "float* to = result", "float* to = nullptr; result"),
    "memory_order": [
        *mutants(solution, "torch::stable::contiguous(numbers)", "numbers"),
        *mutants(solution, "torch::stable::contiguous(scales)", "scales"),
    ],
    "not_refused": [
        *mutants(solution, "dense.const_data_ptr<int8_t>()", "(const int8_t*)dense.data_ptr()"),
        *mutants(solution, CHECK, "", f"if (!({EQUAL})) exit(1);"),
        *mutants(solution, EQUAL, "scales.size(0) >= numbers.size(0)"),
    ],
    None: [
        lambda: solution().splitlines(),
        *mutants(solution, "result;", "result"),
        *mutants(solution, "factor[row] * from", "factor[column % rows] * from"),
        *mutants(solution, CHECK, f'{CHECK} STD_TORCH_CHECK(numbers.numel() > 0, "empty");'),
    ],
}
