"""What a pool is: its arrays, its plain data, joining, identity, and what it refuses."""

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ata_gym import pools
from ata_gym.pools import Pool, concatenate

positive = st.floats(1e-6, 1e6)
records = st.lists(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=5), min_size=1, max_size=4)
some_pools = st.one_of(
    st.builds(pools.exponential, st.lists(positive, min_size=1, max_size=4), st.floats(0, 10)),
    st.builds(pools.gamma, st.lists(positive, min_size=1, max_size=4), positive),
    st.builds(pools.log_normal, st.floats(-5, 5), st.floats(0.1, 5)),
    st.builds(pools.pareto, positive, positive),
    st.builds(pools.deterministic, positive),
    st.builds(
        pools.trace,
        records,
        st.sampled_from(["task", "round"]),
        st.sampled_from(["wrap", "truncate"]),
    ),
)


@settings(max_examples=20)
@given(some_pools)
def test_data_json_and_pickle_give_an_equal_pool(pool):
    plain = [pool, pool.to_data(), json.loads(json.dumps(pool.to_data())), [pool.to_data()]]
    for twin in (
        *map(Pool.from_data, plain),
        pickle.loads(pickle.dumps(pool)),
        copy.deepcopy(pool),
    ):
        assert twin == pool
        assert (hash(twin), repr(twin)) == (hash(pool), repr(pool))
        np.testing.assert_array_equal(twin.mean(), pool.mean())
        assert not any(column.flags.writeable for column in twin.distributions)
    for name, column in pool.distributions._asdict().items():
        assert column.dtype == (
            np.int64 if name in ("family", "record_start", "length", "limit") else np.float64
        )
        assert column.flags.c_contiguous
        assert column.shape == ((pool.n,) if name != "table" else column.shape)
    assert pool.distributions.table.size >= 1
    assert (
        pool.distributions.record_start + pool.distributions.length <= pool.distributions.table.size
    ).all()


@settings(max_examples=15)
@given(st.lists(some_pools, min_size=1, max_size=5))
def test_joining(parts):
    pool = concatenate(parts)
    assert (
        pool == Pool.from_data([part.to_data() for part in parts]) == sum(parts[1:], start=parts[0])
    )
    assert pool.n == len(pool) == sum(part.n for part in parts)
    assert pool.families == tuple(name for part in parts for name in part.families)
    for moment in (Pool.mean, Pool.sd):
        np.testing.assert_array_equal(
            moment(pool),
            np.concatenate([moment(part) for part in parts]),
        )
    result, expected = (
        [
            one.record(i).tolist()
            for one in joined
            for i in range(one.n)
            if one.families[i].startswith("trace")
        ]
        for joined in ([pool], parts)
    )
    assert result == expected


def test_distributions_of_traces():
    pool = (
        pools.trace([[1, 2], [3]], end="truncate")
        + pools.gamma(2, 3, 4)
        + pools.trace([[4]], "round")
    )
    never = np.iinfo(np.int64).max
    assert {name: column.tolist() for name, column in pool.distributions._asdict().items()} == {
        **{
            "family": [8, 8, 4, 9],
            "shift": [0, 0, 4, 0],
            "scale": [1, 1, 3, 1],
            "shape": [1, 1, 2, 1],
        },
        **{
            "table": [1, 2, 3, 4],
            "record_start": [0, 2, 0, 3],
            "length": [2, 1, 1, 1],
            "limit": [2, 1, never, never],
        },
    }
    assert pools.exponential(1).distributions.table.tolist() == [0]


def test_constructors_give_the_distributions_they_name():
    assert pools.exponential([1, 2], shift=3) == Pool("exponential", shift=3, scale=[1, 2])
    assert pools.shifted_exponential(3, [1, 2]) == pools.exponential([1, 2], 3)
    assert pools.uniform(1, [3, 5]) == Pool("uniform", shift=1, scale=[2, 4])
    assert pools.gamma(2, 3, 4) == Pool("gamma", shape=2, scale=3, shift=4)
    assert pools.log_normal(0, 2, 4) == Pool("log-normal", shape=2, shift=4)
    assert pools.weibull(2, 3, 4) == Pool("weibull", shape=2, scale=3, shift=4)
    assert pools.pareto(2, 3, 4) == Pool("pareto", shape=2, scale=3, shift=4)
    assert pools.deterministic(2) == Pool("deterministic", scale=2)
    assert pools.trace([[1], [2]], "round", "truncate") == Pool(
        "trace-by-round",
        times=[[1], [2]],
        end="truncate",
    )
    np.testing.assert_allclose(pools.half_normal([2, 3], 1).mean(), [3, 4])
    mixed = Pool(
        ["gamma", "trace-by-task"],
        shape=[2, 1],
        times=[None, [5]],
        end=["wrap", "truncate"],
    )
    assert mixed == pools.gamma(2, 1) + pools.trace([[5]], end="truncate")


def test_equality_is_by_content():
    pool = pools.exponential([1, 2])
    other_pools = [
        pools.exponential([1, 3]),
        pools.exponential([1, 2, 3]),
        pools.exponential([1, 2], 1),
    ]
    traces = [pools.trace([[1], [2]], *more) for more in ((), ("task", "truncate"), ("round",))]
    different = [*other_pools, pools.weibull(1, [1, 2]), *traces, pools.trace([[1], [3]])]
    assert len({pool, *different, pools.exponential([1.0, 2.0])}) == 1 + len(different)
    assert pool != [1, 2]
    assert Pool("uniform", shift=-0.0) == Pool("uniform", shift=0.0)
    assert hash(Pool("uniform", shift=-0.0)) == hash(Pool("uniform", shift=0.0))
    assert hash(pools.trace([[-0.0, 1]])) == hash(pools.trace([[0.0, 1]]))


def test_pools_are_immutable():
    pool = pools.exponential([1, 2])
    with pytest.raises(AttributeError, match="immutable"):
        pool.distributions = None
    with pytest.raises(AttributeError, match="immutable"):
        del pool.distributions
    with pytest.raises(ValueError, match="read-only"):
        pool.distributions.scale[0] = 5
    record = np.array([1.0, 2.0])
    pool = pools.trace([record, record])
    record[:] = 9
    assert pool.mean().tolist() == [1.5, 1.5]


def test_repr():
    assert repr(pools.exponential([1, 2.5])) == "Pool(n=2, exponential, mean times 1 to 2.5)"
    mixed = pools.uniform(1, 3) + pools.deterministic(2) + pools.uniform(0, 4)
    assert repr(mixed) == "Pool(n=3, deterministic, uniform, mean time 2)"
    with pytest.raises(TypeError):
        mixed + 3


nan = np.nan
inf = np.inf
loop: list[object] = []
loop.append(loop)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: pools.exponential(nan), "mean must be positive and finite, got nan"),
        (
            lambda: pools.exponential([1, 0]),
            "mean must be positive and finite, got 0.0 for worker 1",
        ),
        (lambda: pools.exponential(inf), "mean must be positive and finite, got inf"),
        (lambda: pools.exponential([]), "at least one worker"),
        *(
            (lambda bad=bad: pools.exponential(bad), "one number per worker")
            for bad in ([[1]], [[1], 2], "2", True, None, 10**400)
        ),
        (lambda: pools.exponential([1, 2], [1, 2, 3]), "lengths are shift 3, scale 2"),
        (
            lambda: pools.exponential(1, shift=-1),
            "must never be negative; it goes down to -1.0 for worker 0",
        ),
        (lambda: pools.exponential(1, shift=nan), "shift must be finite"),
        (lambda: pools.uniform(-1, 1), "must never be negative"),
        (lambda: pools.uniform(2, 2), "low < high"),
        (lambda: pools.uniform([1, 2], [3, 4, 5]), "low 2, high 3"),
        (lambda: pools.half_normal(-1), "mean must be positive"),
        (lambda: pools.log_normal(0, 0), "sigma must be positive"),
        (lambda: pools.log_normal(1000, 1), r"exp\(mu\) must be positive and finite"),
        (lambda: pools.log_normal(0, 30), "beyond floating point with shape 30.0 for worker 0"),
        (lambda: pools.weibull(1e-3, 1), "weibull has moments beyond floating point"),
        (lambda: pools.gamma(-1, 1), "shape must be positive"),
        (lambda: pools.gamma(1e200, 1e200), "beyond floating point"),
        (lambda: pools.deterministic(0), "time must be positive"),
        (lambda: Pool("deterministic", scale=1, shift=-1), "mean time must be positive"),
        (lambda: Pool("erlang"), "family must be one of deterministic, exponential"),
        (lambda: Pool(3), "family must be one of"),
        (lambda: Pool([]), "family is empty"),
        (lambda: Pool([["gamma"]]), "family must be one of"),
        (lambda: Pool("exponential", shape=2), "exponential has no shape, leave it at 1; got 2.0"),
        (lambda: Pool("exponential", times=[[1]]), "replays no trace, but 1 recorded times"),
        (lambda: Pool("trace-by-task"), "needs at least one recorded time"),
        (lambda: Pool("trace-by-task", times=[[1], None]), "worker 1 replays a trace and needs"),
        (
            lambda: Pool("trace-by-task", scale=[1, 2], times=[[1]]),
            "one record per worker: 2, got 1",
        ),
        (lambda: pools.trace([]), "times is empty"),
        (lambda: pools.trace([[]]), "at least one recorded time"),
        *(
            (lambda bad=bad: pools.trace(bad), "times of worker 0 must be a sequence of numbers")
            for bad in ([1.0, 2.0], [["a"]], [[1, [2]]])
        ),
        (lambda: pools.trace(3), "one sequence of numbers per worker"),
        (lambda: pools.trace("ab"), "times is empty"),
        (
            lambda: pools.trace([[1], [2, -3]]),
            "times of worker 1 must be finite and not negative, got -3",
        ),
        (lambda: pools.trace([[nan]]), "finite and not negative, got nan"),
        (lambda: pools.trace([[inf]]), "finite and not negative, got inf"),
        (lambda: pools.trace([[0, 0]]), "all 0"),
        (lambda: pools.trace([[1]], replay="worker"), "replay must be task or round, got 'worker'"),
        (lambda: pools.trace([[1]], end="stop"), "end must be one of wrap, truncate, got 'stop'"),
        (lambda: concatenate([]), "at least one pool"),
        (lambda: concatenate([pools.exponential(1), 3]), "only pools"),
        (lambda: Pool.from_data({"scale": 1}), "no family"),
        (lambda: Pool.from_data({"family": "uniform", "mean": 1}), r"unknown \['mean'\]"),
        (lambda: Pool.from_data("uniform"), "made from a Pool, a mapping"),
        (lambda: Pool.from_data([]), "at least one pool"),
        (lambda: Pool.from_data([["uniform"]]), "made from a Pool, a mapping"),
        (lambda: Pool.from_data(loop), "cannot hold itself"),
        (lambda: Pool.from_data([[{"family": "exponential"}], loop]), "cannot hold itself"),
        (lambda: pools.exponential(1).record(0), "worker 0 is exponential and replays no trace"),
        (lambda: pools.deterministic(1).standard(0), "no density"),
        (lambda: pools.trace([[1, 2]]).standard(0), "no density"),
    ],
)
def test_bad_input_gives_one_clear_error(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
