"""AlexNet for one GPU (footnote 1 of Krizhevsky, "One weird trick for parallelizing convolutional neural networks").

The stem has a padding of 2, as everyone who trains it on images of 224 pixels has.
"""

from torch import nn

from stepsim.workloads.families.classifier import ImageStep, conv_relu, image_step

CONVOLUTIONS = ((64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1))
"""Channels, kernel, stride and padding of each; a pool stands behind the first, the second and the last."""

POOLED = (0, 1, 4)


def alexnet(batch: int, *, image: int = 224, shrink: int = 1, hidden: int = 4096, classes: int = 1000) -> ImageStep:
    """All channels are divided by ``shrink``; whatever the image, the linear layers take 6 x 6 pixels."""

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        width = 3
        for number, (channels, kernel, stride, padding) in enumerate(CONVOLUTIONS):
            layers.append(conv_relu(width, channels // shrink, kernel, stride=stride, padding=padding))
            width = channels // shrink
            if number in POOLED:
                layers.append(nn.MaxPool2d(3, 2))
        layers += [nn.AdaptiveAvgPool2d(6), nn.Flatten()]
        for size in (width * 6 * 6, hidden):
            layers += [nn.Dropout(), nn.Linear(size, hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(hidden, classes))

    return image_step(build, batch, image=image, classes=classes)
