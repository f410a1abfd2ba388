"""What tests share: a small disk, and how many random cases run.

They are few by default and the same in every run; `EINDECOMP_EXAMPLES=20` asks for that many times
as many, other ones each time.
"""

import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, settings

from cases import FACTOR

settings.register_profile(
    "eindecomp",
    max_examples=4 * FACTOR,
    deadline=None,
    derandomize=FACTOR == 1,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("eindecomp")


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of one megabyte."""
    folder, mount = tmp_path / "small", shutil.which("mount")
    folder.mkdir()
    if os.name != "posix" or os.geteuid() or mount is None:
        pytest.skip("only root can mount a disk")
    done = subprocess.run(  # noqa: S603
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False
    )
    if done.returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    # A writer that was told may still be closing its file.
    umount = [str(shutil.which("umount")), str(folder)]
    if subprocess.run(umount, check=False).returncode:  # noqa: S603
        subprocess.run([*umount, "--lazy"], check=True)  # noqa: S603
