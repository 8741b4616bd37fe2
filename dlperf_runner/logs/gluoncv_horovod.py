"""GluonCV's train_horovod.py: the printed rate is that of all devices, over `log_interval` steps.

    INFO:root:Namespace(batch_size=128, dtype='float32', log_interval=1, ...)
    INFO:root:world_size=8
    INFO:root:Epoch[0] Rank[0] Batch[2] Loss[8.603]
    INFO:root:Epoch[0] Batch[2]<TAB>Speed: 2.05 samples/sec
    INFO:root:Epoch[0]<TAB>Speed: 2.26 samples/sec

The last line is the rate of the epoch, not of a step. Batches count from 1. Only the first epoch
of a log counts, as in the published rule. In Horovod's mxnet_imagenet_resnet50.py, a rank prints
`Epoch[0] Rank[1] Batch[20]<TAB>accuracy=0.001<TAB>lr=0.1` in the place of the loss.
"""

from __future__ import annotations

import re

from . import text
from .records import Expression, Format, Statement, stated
from .statements import NAMESPACE

# The last lines of an epoch, here and in train_imagenet.py: "[Epoch 0] speed: 2758 samples/sec".
RATE_OF_EPOCH = re.compile(
    rb"(?:Epoch\[\d{1,6}+\][ \t]{1,8}+Speed|\[Epoch \d{1,6}+\] speed): [\d.]{1,24}+ samples/sec"
)
FORMAT = Format(
    name="gluoncv_horovod",
    sample="INFO:root:Epoch[0] Batch[2]\tSpeed: 2.05 samples/sec",
    marker=b"] Batch[",
    entry=Expression(
        rb"Epoch\[(?P<epoch>\d{1,6}+)\] (?:Rank\[\d{1,9}+\] |)Batch\[(?P<step>\d{1,12}+)\]"
        rb"(?:[ \t]{1,8}+Speed: (?P<rate>%s) samples/sec(?!/)| Loss\[(?P<loss>[^\]\r\n]{0,200}+)\]"
        rb"|\t[\w -]{1,32}+=)" % text.WORD
    ),
    rate=text.NUMBER,
    statements=(
        *text.PARTS_OF_STEP,
        Statement(
            "Namespace(",
            NAMESPACE,
            {
                "batch_size": "batch_size_per_device",
                "dtype": "precision",
                "iterations": "total_steps",
                "log_interval": "log_every",
                "model": "network",
                "input_size": "image_size",
                "image_size": "image_size",
                "classes": "classes",
            },
        ),
        # the order of the options depends on the version of Python
        stated(
            "Namespace(",
            r"\A(?=.{0,4000}?\buse_rec=True\b)(?>.{0,4000}?\brec_train=')"
            r"(?P<data>[^']{0,1000}+)'",
        ),
        # What changes the work of a step, unless it is as usual.
        *(
            stated("Namespace(", rf"\b{option}=(?P<{option}>True)\b")
            for option in ("mixup", "use_se")
        ),
        stated("world_size=", r"\bworld_size=(?P<world_size>\d{1,18}+)"),
    ),
)
