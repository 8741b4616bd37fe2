"""PaddleClas, PaddleDetection, PaddleOCR, PaddleSeg and PaddleNLP: the printed rate is that of one
device. That of PLSC 2, of the same form, is of all devices.

    [2024/07/31 20:24:38] ppcls INFO: [Train][Epoch 1/120][Iter: 10/304]lr(...): 0.1, loss: 6.87,
      batch_cost: 0.10195s, reader_cost: 0.00493, ips: 313.89103 samples/s, eta: 5:01:10
    [2022/06/29 20:24:38] plsc INFO: [Train][Epoch 0/20][Iter: 10/5056]lr: 0.1, ..., ips: 3394.4 ...
    [05/24 20:18:36] ppdet.engine INFO: Epoch: [0] [  20/7329] learning_rate: 0.000333 loss: 5.12
      eta: 9:21:10 batch_cost: 0.4123 data_cost: 0.0003 ips: 4.8508 images/s
    [2022/05/24 20:18:36] ppocr INFO: epoch: [1/500], global_step: 20, lr: 0.001000, loss: 2.51, ...
      avg_samples: 32.0, ips: 160.51234 samples/s, eta: 9:21:10
    [2020/11/16 20:18:36] root INFO: epoch: [0/100], iter: 20, lr: 0.001000, loss: 0.6977, ...
      batch_cost: 2.57432 s, samples: 5120, ips: 198.88747
    [2022-05-24 20:18:36,123] [    INFO] - global step 20 / 1000, loss: 7.9, avg_reader_cost: ...
      avg_samples: 32.00000, ips: 160.51234 sequences/sec
    2021-03-30 20:18:36 [INFO] [TRAIN] epoch: 1, iter: 20/500, loss: 2.1, lr: 0.01, batch_cost: ...
      reader_cost: 0.07273, ips: 3.7425 samples/sec | ETA 00:04:16
    [2021/03/24 20:18:36] ppcls INFO: epoch:0   train step:20   lr: 0.1, loss:  6.87 top1: ...
      batch_cost: 0.66463 s, reader_cost: 0.00089 s, ips: 385.17405 samples/sec.   (static graphs)
    [2021-05-08 20:18:36,175] [    INFO] - step_idx: 20, epoch: 0, batch: 20, avg loss: 8.05, ...
      avg_speed: 8.17 step/s, ..., tokens: 454782, ips: 37154.39 words/sec   (Transformer)
    2020-09-25 20:18:36,914-INFO: iter: 20, lr: 0.000033, 'loss': '7.9', eta: 0:10:47,
      batch_cost: 0.33027 sec, ips: 12.11126 images/sec     (PaddleDetection of 2020)

Each is one line. Of PaddleClas and PaddleDetection, steps count from 0 in each epoch; PaddleClas
calls its unit images/sec before 2022. Since April 2024, a rate of PaddleClas is the mean since the
line before; earlier ones are means since the sixth step of the epoch.

Those of PaddleDetection, PaddleSeg and PaddleNLP are means since the line before, as are those of
PaddleOCR, which has a line for the last step of each epoch, too. In its version 2.0, and in
PaddleDetection of 2020, steps count from 0, and `samples` is that of the steps since the line
before. Some versions print "tobal step".

Only rank 0 prints, or each prints a log of its own. The line `init nccl context nranks: 8 local
rank: 0 gpu id: 0 ring id: 0` has the number of devices.

Source: PaddlePaddle/PaddleClas d178931 (2024) and 061d07c (2021), ppcls/engine/train/utils.py;
PaddlePaddle/PaddleDetection 0191759, ppdet/engine/callbacks.py, and pull request 1512 (2020);
PaddlePaddle/PaddleSeg, pull request 928 (2021) and paddleseg/core/train.py;
PaddlePaddle/PaddleOCR 2.0, 006d84b and 2.7, tools/program.py; PaddlePaddle/PaddleNLP 2.0 to 2.8,
tests/benchmark and examples/language_model/bert/run_pretrain.py; PaddlePaddle/PLSC 46334fd and
3155fea, plsc/engine/classification/utils.py and plsc/engine/recognition/utils.py.
"""

from __future__ import annotations

from dataclasses import replace

from . import text
from .records import Expression, Format, stated

_RATE = {b"w": text.WORD, b"samples": rb"(?:samples?|images?|sequences?)/s(?>(?:ec)?)(?![\w/])"}
STEP = (
    rb"\b(?:global|to[bt]al)[ _]step:? (?P<step>\d{1,12}+)(?>(?: / \d{1,12}+)?), "
    rb"(?>[^\r\n]{0,400}?\bloss: )(?P<loss>[^\s,]{1,64}+)"
    rb"(?:(?>[^\r\n]{0,2000}?, avg_samples: )(?P<samples>\d{1,9}+)(?>(?:\.0{1,9}+)?)(?=,))?"
    rb"(?>[^\r\n]{0,2000}?, ips: )(?P<rate>%(w)s) %(samples)s" % _RATE
)
_CAVEAT = (
    "rates of PaddleClas before April 2024 are means since the sixth step of an epoch, so that they"
    " hold a part of the warm-up"
)
_STEPS = Format(
    name="paddle",
    sample="global step 20 / 1000, loss: 7.9, ... ips: 160.51234 sequences/sec",
    marker=b", ips: ",
    entry=Expression(
        # OpenOCR is not of this framework.
        rb"(?:(?<!open[a-z]{3} INFO: )epoch: \[\d{1,6}+/\d{1,6}+\], |(?<!\], ))" + STEP
    ),
    rate=rb"\d+\.\d+",
    statements=(
        stated(
            "init nccl context nranks: ", r"nranks: (?P<world_size>\d{1,9}+) .{1,60}ring id: 0\b"
        ),
    ),
    rates_are_per="device",
    framework="paddle",
)
_OCR_2020 = replace(
    _STEPS,
    sample="epoch: [0/100], iter: 20, lr: ..., loss: 0.6977, ... samples: 5120, ips: 198.88747",
    entry=Expression(
        rb"\bepoch: \[\d{1,6}+/\d{1,6}+\], iter: (?P<step>\d{1,12}+), "
        rb"(?>[^\r\n]{0,400}?\bloss: )(?P<loss>[^\s,]{1,64}+)"
        rb"(?>[^\r\n]{0,2000}?, samples: )\d{1,9}+, ips: " + text.rate_before(text.END)
    ),
    zero_based=True,
)
_DETECTION_2020 = replace(
    _STEPS,
    sample="iter: 20, lr: 0.000033, 'loss': '7.9', ... batch_cost: 0.3 sec, ips: 12.1 images/sec",
    marker=b" sec, ips: ",
    entry=Expression(
        rb"-INFO: iter: (?P<step>\d{1,12}+), lr: [^\r\n,]{1,32}+, "
        rb"(?:'loss': '(?P<loss>[^\s']{1,64}+)')?"
        rb"(?>[^\r\n]{0,2000}? sec, ips: )(?P<rate>%(w)s) %(samples)s" % _RATE
    ),
    zero_based=True,
)
_SEGMENTATION = replace(
    _STEPS,
    sample="[TRAIN] epoch: 1, iter: 20/500, loss: 2.0859, ... ips: 3.7425 samples/sec | ETA ...",
    marker=b"[TRAIN] epoch: ",
    entry=Expression(
        rb"\[TRAIN\] epoch: \d{1,9}+, iter: (?P<step>\d{1,12}+)/\d{1,12}+, "
        rb"(?:loss: (?P<loss>[^\s,]{1,64}+),)?"
        rb"(?>[^\r\n]{0,2000}?, ips: )(?P<rate>%(w)s) %(samples)s" % _RATE
    ),
)
_DETECTION = replace(
    _STEPS,
    sample="Epoch: [0] [  20/7329] learning_rate: 0.000333 loss: 5.12 ... ips: 4.8508 images/s",
    marker=b"Epoch: [",
    entry=Expression(
        rb"Epoch: \[(?P<epoch>\d{1,6}+)\] \[ {0,8}+(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+)\] "
        rb"learning_rate: (?:(?>[^\r\n]{0,2000}?\bloss: )(?P<loss>%(w)s))?"
        rb"(?>[^\r\n]{0,2000}? ips: )(?P<rate>%(w)s) %(samples)s" % _RATE
    ),
    zero_based=True,
)


def _train(before: bytes) -> Expression:
    return Expression(
        before + rb"\[Train\]\[Epoch (?P<epoch>\d{1,6}+)/\d{1,6}+\]"
        rb"\[Iter: (?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+)\]"
        rb"(?:(?>[^\r\n]{0,2000}?\bloss: )(?P<loss>[^\s,]{1,64}+))?"
        rb"(?>[^\r\n]{0,2000}?, ips: )(?P<rate>%(w)s) %(samples)s" % _RATE
    )


_CLAS = replace(
    _DETECTION,
    sample="[Train][Epoch 1/120][Iter: 10/304]lr: ... loss: 6.87, ... ips: 313.89 samples/s",
    marker=b"[Train][Epoch ",
    entry=_train(rb"(?<!plsc INFO: )"),
    caveat=_CAVEAT,
)
_CLAS_STATIC = replace(
    _STEPS,
    sample="epoch:0   train step:10   lr: 0.1, loss: 6.87 ... s, ips: 313.89 samples/sec.",
    marker=b" s, ips: ",
    entry=Expression(
        rb"\bepoch:(?P<epoch>\d{1,6}+) {1,8}+train step:(?P<step>\d{1,12}+) {1,12}+"
        rb"(?>[^\r\n]{0,400}?\bloss: {1,8}+)(?P<loss>[^\s,]{1,64}+)"
        rb"(?>[^\r\n]{0,2000}? s, ips: )(?P<rate>%(w)s) %(samples)s" % _RATE
    ),
    caveat=_CAVEAT,
)
_TRANSFORMER = replace(
    _STEPS,
    sample="step_idx: 10, epoch: 0, batch: 10, avg loss: 9.8, ... ips: 20729.05367 words/sec",
    entry=Expression(
        rb"\bstep_idx: (?P<step>\d{1,12}+), (?>[^\r\n]{0,400}?\bavg loss: )"
        rb"(?P<loss>[^\s,]{1,64}+)(?>[^\r\n]{0,2000}?, ips: )(?P<rate>%(w)s) words/sec\b" % _RATE
    ),
    unit="tokens",
)
_PLSC = replace(
    _CLAS,
    sample="plsc INFO: [Train][Epoch 0/20][Iter: 10/5056]lr: ..., ips: 3394.4 images/sec",
    entry=_train(rb"plsc INFO: "),
    rates_are_per="world",
    caveat=None,
)
FORMAT = replace(
    _CLAS,
    variants=(
        *(_PLSC, _CLAS_STATIC, _DETECTION, _SEGMENTATION, _STEPS, _TRANSFORMER, _OCR_2020),
        _DETECTION_2020,
    ),
)
