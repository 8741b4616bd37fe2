"""OpenOCR, on PyTorch: the lines of PaddleOCR under another name, with the rate of one device.

    [2024/08/06 18:03:20] openrec INFO: epoch: [1/20], global_step: 20, lr: 0.000005, loss: 69.176,
      avg_reader_cost: ..., avg_samples: 64.0, ips: 355.37787 samples/s, eta: 0:32:33

This is one line. The logger is called openrec or opendet. Rates are means since the line before.
Only rank 0 prints.

Source: Topdu/OpenOCR, tools/engine/trainer.py and tools/utils/logging.py, 2024.
"""

from __future__ import annotations

from .paddle import STEP
from .records import Expression, Format

FORMAT = Format(
    name="openocr",
    sample="openrec INFO: epoch: [1/20], global_step: 20, lr: ... ips: 355.37787 samples/s",
    marker=b", ips: ",
    entry=Expression(rb"\bopen[a-z]{3} INFO: epoch: \[\d{1,6}+/\d{1,6}+\], " + STEP),
    rate=rb"\d+\.\d+",
    statements=(),
    rates_are_per="device",
    framework="pytorch",
)
