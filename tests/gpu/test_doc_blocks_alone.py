"""Every block of the pages about engines and models runs in a process of its own.

A block runs after those of its page that stand before it. Where there is no GPU, pages run as
doctests already; here one block each shows that this way of running them works.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fresh_process import ROOT, run_fresh
from torch_ways import ON_GPU

from test_doc_blocks import blocks_of

# One GPU is one device of JAX's: a page for eight of them runs on those of a CPU.
PAGES = {
    "torch.md": {},
    "jax.md": {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"},
    "llama.md": {},
    "training.md": {},
}
LONG = () if ON_GPU else ("torch.md",)
BLOCKS = [
    pytest.param(page, number, marks=pytest.mark.long if page in LONG else ())
    for page in PAGES
    for number, block in enumerate(b for b in blocks_of(ROOT / "docs" / page) if not b.not_run)
    if ON_GPU or number == 0
]


@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_a_block_runs(page, number, tmp_path):
    script = Path(__file__).with_name("run_doc_block.py")
    run_fresh(tmp_path, str(script), f"docs/{page}", str(number), **PAGES[page])
