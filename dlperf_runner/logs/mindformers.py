"""MindFormers: samples/s of one device, behind the line of the steps that they are of.

    ... - INFO - { Epoch:[  1/  2], step:[    2/   19], loss: 10.633, per_step_time: 1752ms,
      lr: 1e-05, overflow cond: False, loss_scale: 1.0, global_norm: [1.5], ...: 170.738T
    ... - INFO -    5.3% |██                      | 0.57077 samples/s/p  0:01:03 }

Each is one line. Steps count from 1 in each epoch. A rate is the mean of the steps since the line
before. Each rank writes a log of its own. Without `dataset_sink_mode`, a mean stands behind the
loss: `loss:[10.633/10.641]`; with separate losses, they follow it.

    ... - INFO - { step:[   10/  100], consumed_samples: 1280, global_batch_size: 128,
      loss:  10.633000, per_step_time:   1752ms, lr: 1.000000e-05, grad_norm: ... }

This is one line, of the programs without a graph (pynative) since 2026: the time of one step. A
stage of a pipeline that is not the last one prints no number as its loss.

Source: mindspore-lab/mindformers fd4deeb, mindformers/core/callback/callback.py (MFLossMonitor);
mindformers 2.1.0, mindformers/pynative/callback/loss_callback.py.
"""

from __future__ import annotations

from dataclasses import replace

from .records import Expression, Format

_OF_GRAPHS = Format(
    name="mindformers",
    sample="    5.3% |██                      | 0.57077 samples/s/p  0:01:03 }",
    marker=b" samples/s/p ",
    opening=b" per_step_time: ",
    entry=Expression(
        rb"Epoch:\[ {0,8}+(?P<epoch>\d{1,9}+)/ {0,8}+\d{1,9}+\], "
        rb"step:\[ {0,8}+(?P<step>\d{1,9}+)/ {0,8}+(?P<of_epoch>\d{1,9}+)\], "
        rb"loss: ?\[? {0,8}+(?P<loss>[^\s,/]{1,64}+)[^\r\n,]{0,64}+,"
        rb"(?>(?: [a-z_]{1,32}_loss: {1,8}+[\d.]{1,32}+,){0,5}) per_step_time: \d{1,12}+ms"
        rb"|\| {1,8}+(?P<rate>\S{1,64}+) samples/s/p "
    ),
    rate=rb"\d+\.\d{5}",
    statements=(),
    rates_are_per="device",
    batch_of_step=True,
    framework="mindspore",
)
_PYNATIVE = replace(
    _OF_GRAPHS,
    sample="{ step:[   10/  100], consumed_samples: 1280, ... per_step_time:   1752ms, ... }",
    marker=b"], consumed_samples: ",
    opening=b"",
    entry=Expression(
        rb"step:\[ {0,8}+(?P<step>\d{1,9}+)/ {0,8}+(?P<total>\d{1,9}+)\], "
        rb"consumed_samples: \d{1,15}+, global_batch_size: (?P<batch>\d{1,9}+), "
        rb"loss: {1,12}+(?:N/A [^\r\n)]{1,80}+\)|(?P<loss>[^\s,]{1,64}+)), "
        rb"per_step_time: {1,8}+(?P<rate>[^\sm]{1,64}+)ms"
    ),
    rate=rb"\d+",
    seconds=0.001,
    rates_are_per="step",
    one_step=True,
)
FORMAT = replace(_OF_GRAPHS, variants=(_PYNATIVE,))
