"""InsightFace's ArcFace on MXNet: the printed rate is that of one node's process, over 20 steps.

train.py, data parallel (mx.callback.Speedometer), and train_parall.py, model parallel:

    INFO:root:Epoch[0] Batch [0-20]<TAB>Speed: 1.32 samples/sec<TAB>acc=0.000000<TAB>lossvalue=41.5
    INFO:root:Iter[0] Batch [20]<TAB>Speed: 5.97 samples/sec

train_parall.py prints no loss. A process drives all devices of its node (`ctx_num`). Batches
effectively count from 1: the line with 20 covers the batches up to the 20th. Only the first epoch
of a log counts.

Other programs with this callback print the same lines: MXNet's example of image
classification, and GluonCV's train_imagenet.py, which counts from 0, trains on one node, and prints
its batch size of a device:

    INFO:root:Namespace(batch_size=64, dtype='float16', model='resnet50_v1', num_gpus=4, ...)
    INFO:root:Epoch[0] Batch [49]<TAB>Speed: 1130.501234 samples/sec<TAB>top1-err=0.998750<TAB>...
    INFO:root:[Epoch 0] speed: 1720 samples/sec<TAB>time cost: 22.325581

The last line is the rate of an epoch, not of a step. Its train_recognizer.py prints
`Batch [0049]/[3759]`.

Rates of all devices are those of GluonCV's detection (SSD, YOLOv3, R-CNN), and of NVIDIA's
ResNet-50 of 2019; both count from 0:

    INFO:root:[Epoch 0][Batch 99], LR: 1.00E-03, Speed: 100.323 samples/sec, ObjLoss=19.123, ...
    2019-11-02 10:00:02,123:INFO: Epoch[0] Batch [20-39]<TAB>Speed: 9311.25 samples/sec<TAB>LR: 0.1

Source: deepinsight/insightface 863a7ea, recognition/ArcFace; apache/mxnet 1.9, python/mxnet/
callback.py; dmlc/gluon-cv 567775619, scripts/{classification,detection,action-recognition};
NVIDIA/DeepLearningExamples e470c21, MxNet/Classification/RN50v1.5/fit.py.
"""

from __future__ import annotations

from dataclasses import replace

from . import text
from .records import Expression, Format, Statement, stated
from .statements import EXACT, NAMESPACE

# A setting of a program with num_gpus that trains on one node.
_GLUONCV = r"\A(?=.{0,4000}?\bnum_gpus=)(?!.{0,4000}?\bkvstore='dist)(?>.{0,4000}?\b%s)"
_NODES = Format(
    name="mxnet_speedometer",
    sample="INFO:root:Epoch[0] Batch [0-20]\tSpeed: 1.32 samples/sec",
    marker=b"] Batch [",
    entry=Expression(
        rb"(?<!:INFO: Epoch)\[(?P<epoch>\d{1,6}+)\] Batch \[(?:\d{1,12}+-)?(?P<step>\d{1,12}+)\]"
        rb"(?>(?:/\[\d{1,12}+\])?)[ \t]{1,8}+Speed: (?P<rate>%(w)s) samples/sec(?!/)"
        rb"(?:[ \t]{1,8}+acc=%(w)s(?:[ \t]{1,8}+lossvalue=(?P<loss>%(w)s))?)?" % {b"w": text.WORD}
    ),
    rate=text.NUMBER,
    # Called with argument: Namespace(batch_size=2, ctx_num=1, frequent=20, ...) {'max_steps': 120}
    statements=(
        Statement(
            "Namespace(",
            NAMESPACE,
            {
                "per_batch_size": "batch_size_per_device",
                "ctx_num": "world_size",
                "dtype": "precision",  # only this project's script prints it
                "frequent": "log_every",
                "network": "network",
                "parallel": "parallel",  # so does this
                "num_classes": "classes",
                "dataset_path": "data",
                # GluonCV's
                "log_interval": "log_every",
                "model": "network",
                "input_size": "image_size",
            },
        ),
        # GluonCV: the devices of one process. InsightFace's batch_size is that of all devices.
        stated("Namespace(", _GLUONCV % r"(?P<nodes>num_gpus)=[1-9]", values={"num_gpus": "1"}),
        stated("Namespace(", _GLUONCV % r"num_gpus=(?P<world_size>[1-9]\d{0,8}+)"),
        stated("Namespace(", _GLUONCV % r"batch_size=(?P<batch_size_per_device>\d{1,9}+)"),
        *(
            stated("Namespace(", rf"\b{option}=(?P<{option}>True)\b")
            for option in ("mixup", "use_se")
        ),
        stated("Namespace(", r"'image_shape': \((?P<image_size>\d{1,18}+),"),
        # 0: no limit
        stated("Namespace(", r"\bmax_steps(?:=|': )(?P<total_steps>(?!0\b)\S{1,20}?)[,})]"),
        # What changes the work of a step, unless it is as usual.
        stated("Namespace(", r"'memonger': (?P<memonger>True)\b"),
        # Only train_parall.py has the first option, and train.py does not print the second.
        stated(
            "Namespace(", r"\b(?P<parallel>ctx_num_classes)=", values={"ctx_num_classes": "model"}
        ),
        stated(
            "Called with argument: ",
            r"(?P<parallel>Called)(?!.{0,2000}?\b(?:ctx_num_classes|parallel)=)",
            values={"Called": "data"},
        ),
    ),
    rates_are_per="node",
    caveat="a rate is taken as that of a node; Horovod's examples in module mode print that of all"
    " devices",
)
_NVIDIA = replace(
    _NODES,
    sample="2019-11-02 10:00:02,123:INFO: Epoch[0] Batch [20-39]\tSpeed: 9311.25 samples/sec ...",
    marker=b":INFO: Epoch[",
    entry=Expression(
        rb":INFO: Epoch\[(?P<epoch>\d{1,6}+)\] Batch \[\d{1,12}+-(?P<step>\d{1,12}+)\]\t"
        rb"Speed: (?P<rate>%s) samples/sec(?!/)" % text.WORD
    ),
    statements=(),
    zero_based=True,
    rates_are_per="world",
    caveat=None,
)
_DETECTION = replace(
    _NVIDIA,
    sample="[Epoch 0][Batch 99], LR: 1.00E-03, Speed: 100.323 samples/sec, ObjLoss=19.123, ...",
    marker=b"][Batch ",
    entry=Expression(
        rb"\[Epoch (?P<epoch>\d{1,6}+)\]\[Batch (?P<step>\d{1,12}+)\], "
        rb"(?>(?:LR: [\d.E+-]{1,16}+, )?)Speed: (?P<rate>%s) samples/sec, " % text.WORD
    ),
    statements=(
        Statement(
            "Namespace(",
            NAMESPACE,
            {
                "batch_size": "global_batch_size",
                "log_interval": "log_every",
                "amp": "precision",
            },
            {"True": "amp", "False": EXACT},
        ),
    ),
)
FORMAT = replace(_NODES, variants=(_NVIDIA, _DETECTION))
