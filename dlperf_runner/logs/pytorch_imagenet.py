"""PyTorch's examples/imagenet, and Swin: the printed time is that of one step, in seconds.

    Epoch: [0][ 11/391]<TAB>Time  0.102 ( 0.647)<TAB>Data  0.001 ( 0.050)<TAB>Loss 6.9900e+00 (...
    Epoch: [0][10/391]<TAB>Time 0.102 (0.647)<TAB>Data 0.001 (0.050)<TAB>Loss 6.9900 (7.0000)...
    Epoch: [0][10/391]<TAB>Time 0.102 (0.647)<TAB>Speed 2508.3 (395.7)<TAB>Loss 6.99 (7.00)<TAB>...
    INFO Train: [14/300][250/1251]<TAB>eta 0:10:52 lr 0.000710<TAB> wd 0.0500<TAB>
      time 0.6408 (0.6516)<TAB>loss 6.5584 (6.3074)<TAB>grad_norm ...      (on one line)

The second is that of 2017 to June 2019; `Acc@1` was `Prec@1` until 2018. What stands in parentheses
is the mean of all steps of the epoch so far: it shows if steps between the lines took longer, as
they do when data comes late. Steps count from 1 since June 2022, and from 0 before.

The program prints every `print-freq` steps, 10 by default. Each process of a run with several
prints all lines; its batch size, `-b`, is that of a node, which the log does not state.

The third is that of apex's example and the programs made from it: `Speed` is the rate of all
devices, the mean since the line before.

The fourth is that of Swin and the programs made from it; before 2022, it has no `wd`. Each process
prints into a file of its own. With accumulation, a step is one of the batches.

Source: pytorch/examples 645c7c3 (2018), 1de2ff9 (2019), d547876 (2022) and 77f55b9 (2025),
imagenet/main.py; NVIDIA/apex, examples/imagenet/main_amp.py; microsoft/Swin-Transformer 00f2800,
main.py and its logs of 2021 and 2022.
"""

from __future__ import annotations

from dataclasses import replace

from . import text
from .records import Expression, Format, stated
from .statements import EXACT

_LINE = (
    rb"Epoch: \[(?P<epoch>\d{1,6}+)\]\[ {0,8}+(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+)\]"
    rb"[ \t]{1,8}+Time[ \t]{1,8}+"
)
_NETWORK = r"=> (?:creating|using pre-trained) model '(?P<network>[^'\r\n]{1,100}+)'"
_SPEED = Format(
    name="pytorch_imagenet",
    sample="Epoch: [0][10/391]\tTime 0.102 (0.647)\tSpeed 2508.267 (395.702)\tLoss 6.9900 ...",
    marker=b"Epoch: [",
    entry=Expression(
        _LINE + rb"[\d.]{1,16}+ \([\d.]{1,16}+\)[ \t]{1,8}+Speed (?P<rate>%(w)s) \("
        rb"(?:(?>[^\r\n]{0,80}?Loss )(?P<loss>%(w)s))?" % {b"w": text.WORD}
    ),
    rate=rb"\d+\.\d{3}",
    statements=(stated("=> ", _NETWORK),),
    framework="pytorch",
)
_LOSS_MEAN = rb"[ \t]{1,8}+(?>[^\r\n]{0,200}?\bloss )(?P<loss>%s) \(" % text.WORD
_SWIN = replace(
    _SPEED,
    sample="Train: [14/300][250/1251]\teta 0:10:52 lr 0.000710\ttime 0.6408 (0.6516)\tloss ...",
    marker=b"Train: [",
    entry=Expression(
        rb"Train: \[(?P<epoch>\d{1,6}+)/\d{1,6}+\]\[(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+)\]"
        rb"[ \t]{1,8}+eta [^\r\n\t]{1,60}[ \t]{1,8}+(?>(?:wd [\d.]{1,16}+[ \t]{1,8}+)?)"
        rb"time (?P<rate>[^\s(]{1,64}+) \((?P<mean>\d{1,9}+\.\d{4})\)" + _LOSS_MEAN
    ),
    rate=rb"\d+\.\d{4}",
    statements=(
        stated("Creating model:", r"Creating model: ?[\w-]{1,64}+/(?P<network>\S{1,100}+)"),
        stated("WORLD_SIZE in environ: ", r"environ: \d{1,9}+/(?P<world_size>\d{1,9}+)\s*+\Z"),
        stated("BATCH_SIZE: ", r"\A {1,8}BATCH_SIZE: (?P<batch_size_per_device>\d{1,9}+)\s*+\Z"),
        stated(
            "AMP_ENABLE: ",
            r"\AAMP_ENABLE: (?P<precision>true|false)\b",
            values={"true": "amp", "false": EXACT},
        ),
    ),
    one_step=True,
    seconds=1.0,
    rates_are_per="step",
    counts_batches=True,
)
FORMAT = replace(
    _SPEED,
    sample="Epoch: [0][ 11/391]\tTime  0.102 ( 0.647)\tData  0.001 ( 0.050)\tLoss 6.9900e+00 ...",
    entry=Expression(
        _LINE
        + rb"(?P<rate>[^\s(]{1,64}+)[ \t]{1,8}+\( {0,8}+(?P<mean>\d{1,9}+\.\d{3})\)[ \t]{1,8}+Data "
        rb"[^\r\n]{0,60}?Loss {1,8}+(?P<loss>%s)" % text.WORD
    ),
    one_step=True,
    seconds=1.0,
    rates_are_per="step",
    variants=(_SPEED, _SWIN),
)
