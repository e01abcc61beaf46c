#!/usr/bin/env bash
# minari 0.5.4, h5py 3.16.0, pillow 13.0.0, gymnasium 1.4.0
#
# DataCollector by default keeps each observation or action of a Box(0, 255) of uint8 with two or three dimensions as JPEG once
# it is at least 32 by 32, and JPEG is lossy: what is read is not what was written. The space alone decides, so that a map whose
# numbers are kinds of things (walls, doors, segments) is blurred like a photograph, without a warning; one of 31 by 31 is kept.
# It concerns grids and masks as observations: DataCollector(..., jpeg_encoding=False) keeps them, and so does a Box whose
# highest value is that of the last kind. Data sets that have been written cannot be mended.
. "$(dirname "$0")/fresh.bash"
install minari[create]==0.5.4 h5py==3.16.0 pillow==13.0.0 gymnasium==1.4.0 numpy==2.4.6

expect "31 x 31: all cells are read as written: True; a quarter of them: True
32 x 32: all cells are read as written: False; a quarter of them: False
32 x 32, jpeg_encoding=False: all cells are read as written: True; a quarter of them: True
32 x 32, as Box(0, 10): all cells are read as written: True; a quarter of them: True" <<'PY'
import os

os.environ["MINARI_DATASETS_PATH"] = os.getcwd()
import gymnasium as gym
import minari
import numpy as np


class Map(gym.Env):
    """A map of eleven kinds of cells, which is new in each step."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, side, highest):
        self.observation_space = gym.spaces.Box(0, highest, (side, side), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.draw(), {}

    def step(self, action):
        return self.draw(), 0.0, False, True, {}

    def draw(self):
        return self.np_random.integers(0, 11, self.observation_space.shape, dtype=np.uint8)


def report(number, side, name, highest=255, **options):
    env = minari.DataCollector(Map(side, highest), **options)
    written = [env.reset(seed=0)[0], env.step(0)[0]]
    read = env.create_dataset(f"map-v{number}")[0].observations
    share = np.mean(read == np.stack(written))
    print(f"{side} x {side}{name}: all cells are read as written: {share == 1}; a quarter of them: {share > 0.25}")


report(0, 31, "")
report(1, 32, "")
report(2, 32, ", jpeg_encoding=False", jpeg_encoding=False)
report(3, 32, ", as Box(0, 10)", highest=10)
PY
