"""Machines that can be rented, what is in them, and what they cost."""

from dataclasses import dataclass

HOURS_A_MONTH = 730


@dataclass(frozen=True)
class Accelerator:
    """A GPU by its maker's figures: the memory that its driver shows, and the peaks that no step exceeds."""

    name: str
    memory: int                          # MiB
    bandwidth: float                     # GB/s
    operations: float                    # TFLOP/s in bfloat16 (float16 on a T4), without sparsity

    @property
    def memory_bytes(self) -> int:
        return self.memory << 20


T4 = Accelerator("T4", 15360, 320, 65)
L4 = Accelerator("L4", 23034, 300, 121)
A10G = Accelerator("A10G", 23028, 600, 70)
L40S = Accelerator("L40S", 46068, 864, 362)
A100_40 = Accelerator("A100 40GB", 40960, 1555, 312)
A100_80 = Accelerator("A100 80GB", 81920, 2039, 312)
H100 = Accelerator("H100", 81559, 3350, 989)
H200 = Accelerator("H200", 143771, 4800, 989)


@dataclass(frozen=True)
class Machine:
    """A kind of machine with equal GPUs, and its price, in dollars an hour, on a day."""

    name: str
    accelerator: Accelerator
    number: int
    price: float
    priced: str
    """When, where, and who said so."""

    @property
    def accelerators(self) -> str:
        return f"{self.number} × {self.accelerator.name}"

    @property
    def monthly(self) -> float:
        return self.price * HOURS_A_MONTH


LECTURE = "the lecture's slide: $4.94 an hour, $3,605 a month"
AWS = "2025-11-30, on demand, us-east-1, instances.vantage.sh"
MACHINES = {machine.name: machine for machine in (
    Machine("g2-standard-48", L4, 4, 3605 / HOURS_A_MONTH, LECTURE),
    Machine("g4dn.xlarge", T4, 1, 0.526, AWS),
    Machine("g4dn.12xlarge", T4, 4, 3.912, AWS),
    Machine("g5.xlarge", A10G, 1, 1.006, AWS),
    Machine("g5.12xlarge", A10G, 4, 5.672, AWS),
    Machine("g5.48xlarge", A10G, 8, 16.288, AWS),
    Machine("g6.xlarge", L4, 1, 0.8048, AWS),
    Machine("g6.12xlarge", L4, 4, 4.6016, AWS),
    Machine("g6e.xlarge", L40S, 1, 1.861, AWS),
    Machine("g6e.12xlarge", L40S, 4, 10.4926, AWS),
    Machine("p4d.24xlarge", A100_40, 8, 21.9576, AWS),
    Machine("p4de.24xlarge", A100_80, 8, 27.4471, AWS),
    Machine("p5.4xlarge", H100, 1, 6.88, AWS),
    Machine("p5.48xlarge", H100, 8, 55.04, AWS),
    Machine("p5en.48xlarge", H200, 8, 63.296, AWS),
)}
"""By name. A new one is a row here."""
