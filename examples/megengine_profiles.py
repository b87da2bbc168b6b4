"""Profile each call of a function and each entry of a block, as with MegEngine's Profiler."""

import numpy as np

import traceconv

images = {"input": np.random.default_rng(0).random((4, 3, 64, 64), np.float32)}
labels = np.array([0, 1, 2, 3])
session = traceconv.TrainingSession("mini_resnet", images, labels, optimizer="sgd", lr=0.01)
profiler = traceconv.profile(path="profile", formats=("chrome_timeline.json", "memory_flow.svg"), sample_rate=10)


@profiler
def train_step() -> float:
    return session.train_step(images, labels)


for _ in range(2):
    train_step()

with profiler:
    session.train_step(images, labels)

print(len(profiler.captures), "profiles")
for row in profiler.report("step-trace"):
    print("forward and backward:", row["fp_to_bp_ns"], "ns, refresh:", row["refresh_ns"], "ns")
