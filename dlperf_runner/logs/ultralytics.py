"""Ultralytics YOLO, and YOLOv5 to v9: steps per second, the mean of each epoch.

          Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
          1/100      6.73G      1.081     0.4706      1.084         10        640: 100%|██████████|
      16/16 [00:05<00:00,  2.78it/s]
         12/300      3.87G       3.63      5.712      4.189        176        640: 100% ━━━━━━━━━━━━
      8/8 3.1it/s 2.6s
          1/399     0.9812          0      2.301: 100%|██████████| 16/16 [00:05<00:00,  2.78it/s]

Each row is one line; the second is that of version 8.3.190 (2025) and newer, the third of YOLOv6.
A bar is written again and again, with carriage returns; only its last state, before a newline, has
the mean of the epoch. In notebooks such as Colab, a bar has no characters between the percentage
and the steps.

Validation has a bar of its own. The batch is that of all devices: `batch`, `batch_size` of YOLOv5,
`total_batch_size` of YOLOv7, or what AutoBatch chose. Only rank 0 prints. Slow steps are printed as
s/it; of the newer bar, a rate below 1 has too few digits.

Source: ultralytics/ultralytics 002363f and v8.0, ultralytics/utils/tqdm.py and engine/trainer.py;
ultralytics/yolov5 v7.0, train.py; WongKinYiu/yolov7, train.py; meituan/YOLOv6, issue 614;
tqdm 4.66, tqdm/std.py (close and format_meter).
"""

from __future__ import annotations

from dataclasses import replace

from .records import Expression, Format, Statement, stated
from .statements import EXACT, NAMESPACE

_ROW = (
    rb"(?P<epoch>\d{1,6}+)/\d{1,6}+ {1,12}+[\d.]{1,8}+G? (?>[^\r\n%%|]{10,200}?: {1,4}+100%%)%s"
    rb"(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+) %s(?=[ \t]{0,8}+\r?(?:\n|\Z))"
)
_UNIT = rb"(?:it/s|(?P<inverse>s/it))"
_TQDM = rb"(?>(?:\|[^|\r\n]{0,400}+\|)?) "
_OTHER = rb"|100%"  # a bar of validation, or one before its last state: it has no rate here
_MARKER = "trainer: "
_SETTING = r"\bengine[/\\]trainer: (?>.{0,4000}?\b%s=)%s"  # on Windows, the name has a backslash
_SETTING_V5 = r"\btrain: (?=weights=)(?>.{0,4000}?\b%s=)%s"
_BATCH = r"(?P<global_batch_size>\d{1,9}+)(?![\d.])"  # a share of the memory is none
_RESUMED = r"(?![^\s,]{0,200}\b(?:last|best)\.pt)"  # the file says nothing of the network
_NETWORK = _RESUMED + r"(?:[^\s,]{0,200}[/\\])?(?P<network>[\w-]{1,64}+)\.(?:pt|yaml)\b"
_BAR = Format(
    name="ultralytics",
    sample="1/100      6.73G      1.081 ...   640: 100%|███| 16/16 [00:05<00:00,  2.78it/s]",
    marker=b"100%",
    entry=Expression(
        _ROW % (_TQDM, rb"\[[\d:]{4,12}+<00:00, {0,8}+(?P<rate>[^\s\]]{1,64}?)%s\]" % _UNIT)
        + _OTHER
    ),
    rate=rb"\d+\.\d\d",
    statements=(
        stated(_MARKER, _SETTING % ("batch", _BATCH)),
        stated("AutoBatch: Using ", r"AutoBatch: Using batch-size " + _BATCH),
        stated("train: weights=", _SETTING_V5 % ("batch_size", _BATCH)),
        stated("train: weights=", _SETTING_V5 % ("cfg", _NETWORK)),
        stated(
            "train: weights=",
            rf"\btrain: weights={_NETWORK}, cfg=,",
        ),
        Statement("Namespace(", NAMESPACE, {"total_batch_size": "global_batch_size"}),
        stated(
            _MARKER,
            _SETTING % ("amp", r"(?P<precision>True|False)\b"),
            values={"True": "amp", "False": EXACT},
        ),
        stated(_MARKER, _SETTING % ("model", _NETWORK)),
    ),
    rates_are_per="step",
    framework="pytorch",
)
_NEW = replace(
    _BAR,
    sample="12/300      3.87G       3.63 ...   640: 100% ━━━━━━━━━━━━ 8/8 3.1it/s 2.6s",
    marker=b"it/s ",
    entry=Expression(
        _ROW % (rb" [\x80-\xff]{1,99}+ ", rb"(?P<rate>[1-9]\d{0,9}+\.\d)it/s \d[\d:.]{0,9}+s?")
        + rb"|it/s "
    ),
    rate=rb"\d+\.\d",
)
FORMAT = replace(_BAR, variants=(_NEW,))
