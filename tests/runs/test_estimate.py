import numpy as np
import pyarrow as pa
import pytest

from memagent_batch.run.estimate import SAMPLE_BYTES, SAMPLE_DOCUMENTS, Population, Sample, draw_documents

NUM_DOCUMENTS = 40_000


def documents(seed: int) -> pa.Table:
    """Documents whose sizes differ by five orders of magnitude; tokens follow the size, turns hardly do."""
    random = np.random.default_rng(seed)
    sizes = np.minimum(random.lognormal(6, 1.8, NUM_DOCUMENTS).astype(np.int64) + 1, SAMPLE_BYTES // 100)
    tokens = (sizes / random.uniform(3, 5, NUM_DOCUMENTS)).astype(np.int64)
    return pa.table({"num_bytes": sizes, "tokens": tokens, "turns": -(-tokens // 1000) + 1})


def population_of(table: pa.Table, *, num_bundles: int = 7) -> tuple[Population, list[pa.Table]]:
    rows = -(-table.num_rows // num_bundles)
    bundles = [table.slice(start, rows) for start in range(0, table.num_rows, rows)]
    population = Population()
    for bundle in bundles:
        population.add(bundle["num_bytes"].to_numpy())
    return population, bundles


def test_estimate_interval_holds_the_true_sum_in_about_95_of_100_draws() -> None:
    table = documents(seed=1)
    population, bundles = population_of(table)
    truth = {name: int(table[name].to_numpy().sum()) for name in ("tokens", "turns")}
    inside, widths = dict.fromkeys(truth, 0), []
    for seed in range(200):
        sample = Sample(tuple(truth))
        for rows in draw_documents(bundles, population, seed=seed):
            sample.add(rows)
        assert sample.num_documents == population.allocate().sum() < 1.1 * SAMPLE_DOCUMENTS
        for name, estimate in sample.estimate(population).items():
            inside[name] += estimate.low <= truth[name] <= estimate.high
            widths.append((estimate.high - estimate.low) / truth[name])
    assert all(180 <= count <= 198 for count in inside.values()), inside
    assert max(widths) < 0.05


def test_estimate_of_a_small_population_is_exact() -> None:
    table = documents(seed=2).slice(0, SAMPLE_DOCUMENTS)
    population, bundles = population_of(table)
    sample = Sample(("tokens",))
    for rows in draw_documents(bundles, population, seed=0):
        sample.add(rows)
    estimate = sample.estimate(population)["tokens"]
    assert estimate.low == estimate.value == estimate.high == table["tokens"].to_numpy().sum()


@pytest.mark.parametrize("num_bundles", [1, 7, 400])
def test_draw_takes_each_document_at_most_once_and_the_same_ones_for_a_seed(num_bundles: int) -> None:
    table = documents(seed=3).append_column("number", pa.array(range(NUM_DOCUMENTS)))
    population, bundles = population_of(table, num_bundles=num_bundles)
    drawn = pa.concat_tables(draw_documents(bundles, population, seed=5))
    numbers = drawn["number"].to_pylist()
    assert len(numbers) == len(set(numbers)) == population.allocate().sum()
    assert drawn.equals(pa.concat_tables(draw_documents(population_of(table)[1], population, seed=5)))
    other = pa.concat_tables(draw_documents(bundles, population, seed=6))["number"].to_pylist()
    assert numbers != other


def test_draw_takes_documents_of_every_size() -> None:
    sizes = np.array([100] * 5000 + [10_000_000], np.int64)
    population, bundles = population_of(pa.table({"num_bytes": sizes}))
    drawn = pa.concat_tables(draw_documents(bundles, population, seed=0))["num_bytes"].to_pylist()
    assert drawn.count(10_000_000) == 1
    assert drawn.count(100) >= 3
