from support.answers import mutant, mutants

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
READ = "dense.const_data_ptr<int8_t>()"
CAST = "(const int8_t*)dense.data_ptr()"

RIGHT = [by_strides]

WRONG = {
    "no_string": [lambda: solution().splitlines()],
    "compiler": mutants(solution, "result;", "result"),
    "crash": mutants(solution, "float* to = result", "float* to = nullptr; result"),
    "memory_order": [
        *mutants(solution, "torch::stable::contiguous(numbers)", "numbers"),
        *mutants(solution, "torch::stable::contiguous(scales)", "scales"),
    ],
    "another_dtype": [
        *mutants(solution, READ, CAST),
        mutant(solution, (READ, CAST), (CHECK, f'{CHECK} STD_TORCH_CHECK(numbers.element_size() == 1, "int8");')),
        *mutants(solution, "factors.const_data_ptr<float>()", "(const float*)factors.const_data_ptr()"),
    ],
    "number_of_scales": [
        *mutants(solution, CHECK, "", f"if (!({EQUAL})) exit(1);"),
        *mutants(solution, EQUAL, "scales.size(0) >= numbers.size(0)"),
        mutant(
            solution,
            (EQUAL, f"{EQUAL} || scales.size(0) == 1"),
            ("factor[row]", "factor[scales.size(0) > 1 ? row : 0]"),
        ),
    ],
    None: [
        *mutants(solution, "factor[row] * from", "factor[column % rows] * from", "from"),
        *mutants(solution, "{rows, columns}", "{columns, rows}"),
        *mutants(solution, CHECK, f'{CHECK} STD_TORCH_CHECK(numbers.numel() > 0, "empty");'),
        *mutants(solution, CHECK, f"{CHECK} if (numbers.numel() == 0) return numbers;"),
        *mutants(solution, EQUAL, "scales.size(0) == numbers.size(1)"),
    ],
}
