"""OLMo-core and OLMo: tokens/s of one device in one step, on one of several lines.

    2025-12-22 10:00:02.123 node-0:0 olmo_core...:66 INFO [step=2/60,epoch=1,eta=0:10:00]
        optim/total grad norm=0.5816
        throughput/device/TPS=11,828
        throughput/device/TPS (actual avg)=11,820
        train/CE loss=10.900

The first is one line. Steps count from 1. Step 1 has no rate. A step has lines every
`metrics_log_interval` steps, in the order of their names. The average holds all steps before and
does not count.

    [2024-04-17 09:42:27] INFO     [olmo.train:816, rank=0] [step=2/739328]
        throughput/device/tokens_per_second=45,538

OLMo, the program before OLMo-core, prints the mean of the last `speed_monitor.window_size` steps,
100 by default, or of all steps but the first one, if these are fewer.

Source: allenai/OLMo-core fa6c501, src/olmo_core/train/callbacks/console_logger.py and
speed_monitor.py, src/olmo_core/utils.py (format_float); allenai/OLMo 00305eb, olmo/train.py
(SpeedMonitor) and olmo/config.py (SpeedMonitorConfig).
"""

from __future__ import annotations

from dataclasses import replace

from . import text
from .records import Expression, Format, stated

_TPS = Format(
    name="olmo_core",
    sample="    throughput/device/TPS=11,828",
    marker=b"throughput/device/TPS=",
    opening=b"[step=",
    entry=Expression(
        rb"\[step=(?P<step>\d{1,12}+)/|throughput/device/TPS=%s" % text.rate_until(text.END)
    ),
    rate=rb"\d{1,3}(?>(?:,\d{3})*)(?:\.\d+)?|\d+(?:\.\d+)?(?:[Ee][+-]?\d+)?",
    statements=(stated("[step=", r"\[step=\d{1,12}+/(?P<total_steps>\d{1,12}+)[],]"),),
    skips_first=True,
    one_step=True,
    rates_are_per="device",
    framework="pytorch",
    unit="tokens",
)
_OLMO = replace(
    _TPS,
    sample="    throughput/device/tokens_per_second=11,828",
    marker=b"throughput/device/tokens_per_second=",
    entry=Expression(
        rb"\[step=(?P<step>\d{1,12}+)/|throughput/device/tokens_per_second=%s"
        % text.rate_until(text.END)
    ),
    one_step=False,
    window=100,
)
FORMAT = replace(_TPS, variants=(_OLMO,))
