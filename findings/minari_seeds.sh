#!/usr/bin/env bash
# minari 0.5.4, h5py 3.16.0, pillow 13.0.0, gymnasium 1.4.0
#
# DataCollector draws a seed from the operating system for each reset() without one, and hands it to the env. So the customary
# way, one reset(seed=0) and then reset(), which in Gymnasium goes on with the numbers of seed 0, gives episodes that differ in
# each run from the second one on, and to wrap an env changes what an agent meets in it.
# It concerns who collects a data set twice and compares. Give options={"minari_autoseed": False} to each reset (which the env
# gets, too), or a seed of your own to each reset.
. "$(dirname "$0")/fresh.bash"
install minari==0.5.4 h5py==3.16.0 pillow==13.0.0 gymnasium==1.4.0 numpy==2.4.6

expect "the first two episodes of two runs are equal
env alone: True True
DataCollector: True False
DataCollector with minari_autoseed=False: True True
as those of the env alone: True True" <<'PY'
import os

os.environ["MINARI_DATASETS_PATH"] = os.getcwd()
import gymnasium as gym
import minari


def episodes(collect, **options):
    env = gym.make("CartPole-v1")
    if collect:
        env = minari.DataCollector(env)
    return [env.reset(seed=seed, **options)[0].tolist() for seed in (0, None)]


def equal(one, other):
    return " ".join(str(a == b) for a, b in zip(one, other))


off = {"options": {"minari_autoseed": False}}
print("the first two episodes of two runs are equal")
print("env alone:", equal(episodes(False), episodes(False)))
print("DataCollector:", equal(episodes(True), episodes(True)))
print("DataCollector with minari_autoseed=False:", equal(episodes(True, **off), episodes(True, **off)))
print("as those of the env alone:", equal(episodes(True, **off), episodes(False)))
PY
