import numpy as np
import pyarrow as pa

from memagent_batch.run.flows.costs import SAMPLE_BYTES, SAMPLE_DOCUMENTS, SampleSums, draw_documents

NUM_DOCUMENTS = 40_000


def documents(seed: int) -> pa.Table:
    """Documents whose sizes differ by five orders of magnitude; tokens follow the size, turns hardly do."""
    random = np.random.default_rng(seed)
    sizes = np.minimum(random.lognormal(6, 1.8, NUM_DOCUMENTS).astype(np.int64) + 1, SAMPLE_BYTES // 100)
    tokens = (sizes / random.uniform(3, 5, NUM_DOCUMENTS)).astype(np.int64)
    return pa.table({"num_bytes": sizes, "tokens": tokens, "turns": -(-tokens // 1000) + 1})


def test_estimate_interval_holds_the_true_sum_in_about_95_of_100_draws() -> None:
    table = documents(seed=1)
    sizes = table["num_bytes"].to_numpy()
    truth = {name: int(table[name].to_numpy().sum()) for name in ("tokens", "turns")}
    inside, widths = dict.fromkeys(truth, 0), []
    for seed in range(200):
        sums, is_drawn = SampleSums(tuple(truth)), draw_documents(sizes, seed=seed)
        assert is_drawn.sum() < 1.1 * SAMPLE_DOCUMENTS
        sums.add(table.filter(pa.array(is_drawn)))
        for name, estimate in sums.estimate(sizes).items():
            inside[name] += estimate.low <= truth[name] <= estimate.high
            widths.append((estimate.high - estimate.low) / truth[name])
    assert all(180 <= count <= 198 for count in inside.values()), inside
    assert max(widths) < 0.05


def test_estimate_of_few_documents_is_exact() -> None:
    table = documents(seed=2).slice(0, SAMPLE_DOCUMENTS)
    sums, sizes = SampleSums(("tokens",)), table["num_bytes"].to_numpy()
    sums.add(table.filter(pa.array(draw_documents(sizes, seed=0))))
    estimate = sums.estimate(sizes)["tokens"]
    assert estimate.low == estimate.value == estimate.high == table["tokens"].to_numpy().sum()


def test_draw_takes_the_same_documents_for_a_seed_and_some_of_every_size() -> None:
    sizes = np.array([100] * 5000 + [10_000_000], np.int64)
    is_drawn = draw_documents(sizes, seed=5)
    assert (is_drawn == draw_documents(sizes, seed=5)).all()
    assert (is_drawn != draw_documents(sizes, seed=6)).any()
    assert is_drawn[-1]
    assert is_drawn[:-1].sum() >= 3
