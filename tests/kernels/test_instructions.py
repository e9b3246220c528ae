"""Three headers alone know the processor's instructions: another processor needs those anew, and nothing else."""

import re

import pytest

from penstock.kernels.build import SOURCES

HEADERS = {"vec.h", "bytes.h", "tiles.h"}
OF_A_PROCESSOR = re.compile(r"immintrin|arm_neon|\b_mm\w*|\b__m(?:mask)?\d+\w*|\b_cvt\w+|__AVX|__builtin_(?:cpu|ia32)|"
                            r"cpuid|\basm\b(?! volatile\(\"\" )")


def test_instructions_are_in_three_headers() -> None:
    found = {file.name: OF_A_PROCESSOR.findall(file.read_text()) for file in SOURCES.iterdir()}
    assert {name for name, words in found.items() if words} == HEADERS


@pytest.mark.parametrize("line", [
    "_mm_pause();", "const __m256i a;", "__mmask16 m;", "#if defined(__AVX512F__)", "#include <immintrin.h>",
    'asm volatile("prefetcht0 %0" : : "m"(*p));', "_cvtss_sh(x, 0)", '__builtin_cpu_supports("avx512vnni")'])
def test_an_instruction_is_seen(line: str) -> None:
    assert OF_A_PROCESSOR.search(line)
    assert not OF_A_PROCESSOR.search('asm volatile("" ::: "memory");')
