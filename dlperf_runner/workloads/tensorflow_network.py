"""ResNet-50 v1.5 in low-level operations of TensorFlow: Keras changed with every release.

Runs on TensorFlow 1.15 and 2, and on Python 3.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from resnet50 import EXPANSION, bottlenecks

FP16_LOSS_SCALE = 128.0  # gradients of float16 vanish without; the published runs used this one


def network(tf, np, classes: int, seed: int, compute_type):
    """The network (images in, logits out), its parameters, and its moving averages. Parameters and
    logits are float32; it computes in `compute_type`."""
    initial = np.random.RandomState(seed)
    parameters: dict[str, tf.Variable] = {}
    averages: dict[str, tf.Variable] = {}

    def parameter(name: str, shape: tuple[int, ...], value: Callable[[], object]) -> tf.Variable:
        if name not in parameters:
            parameters[name] = tf.Variable(value(), name=name, dtype=tf.float32, shape=shape)
        return parameters[name]

    def convolve(x: tf.Tensor, name: str, width: int, size: int, stride: int) -> tf.Tensor:
        shape = (size, size, int(x.shape[3]), width)
        spread = math.sqrt(2.0 / (size * size * width))  # He, by fan-out
        kernel = parameter(f"{name}/kernel", shape, lambda: initial.normal(0, spread, shape))
        return tf.nn.conv2d(x, tf.cast(kernel, x.dtype), stride, "SAME")

    def normalise(x: tf.Tensor, name: str, first_scale: float = 1.0) -> tf.Tensor:
        shape = (int(x.shape[3]),)
        scale = parameter(f"{name}/gamma", shape, lambda: np.full(shape, first_scale))
        offset = parameter(f"{name}/beta", shape, lambda: np.zeros(shape))
        x, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            x, scale, offset, epsilon=1e-5, is_training=True
        )
        for key, value in ((f"{name}/mean", mean), (f"{name}/variance", variance)):
            if key not in averages:
                averages[key] = tf.Variable(value, name=key, dtype=tf.float32)
            averages[key].assign(0.9 * averages[key] + 0.1 * value)
        return x

    def bottleneck(x: tf.Tensor, name: str, width: int, stride: int, first: bool) -> tf.Tensor:
        shortcut = x
        if first:
            shortcut = convolve(x, f"{name}/shortcut", EXPANSION * width, 1, stride)
            shortcut = normalise(shortcut, f"{name}/shortcut_bn")
        x = tf.nn.relu(normalise(convolve(x, f"{name}/conv1", width, 1, 1), f"{name}/bn1"))
        # v1.5: the stride is taken by the 3x3 convolution, in v1 by the 1x1 before it
        x = tf.nn.relu(normalise(convolve(x, f"{name}/conv2", width, 3, stride), f"{name}/bn2"))
        x = normalise(convolve(x, f"{name}/conv3", EXPANSION * width, 1, 1), f"{name}/bn3", 0.0)
        return tf.nn.relu(x + shortcut)

    def forward(x: tf.Tensor) -> tf.Tensor:
        x = tf.cast(x, compute_type)
        x = tf.nn.relu(normalise(convolve(x, "conv1", 64, 7, 2), "bn1"))
        x = tf.nn.max_pool2d(x, 3, 2, "SAME")
        for number, (inputs, width, stride) in enumerate(bottlenecks(), 1):
            x = bottleneck(x, f"block{number}", width, stride, inputs != EXPANSION * width)
        x = tf.reduce_mean(x, axis=(1, 2))
        shape = (int(x.shape[1]), classes)
        weight = parameter("fc/weight", shape, lambda: initial.normal(0, 0.01, shape))
        bias = parameter("fc/bias", shape[1:], lambda: np.zeros(shape[1:]))
        return tf.matmul(tf.cast(x, tf.float32), weight) + bias

    forward(tf.zeros((1, 64, 64, 3)))  # makes the variables
    return forward, list(parameters.values()), list(averages.values())


def make_batch(tf, np, size: int, pixels: int, classes: int, seed: int):
    """Noise of so many images, and their labels."""
    generator = np.random.RandomState(seed)
    images = tf.constant(generator.normal(size=(size, pixels, pixels, 3)), tf.float32)
    return images, tf.constant(generator.randint(0, classes, size), tf.int32)


def loss_of(tf, logits, labels):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
