"""Draw the plans of the gallery's ten problems into docs/gallery."""

from pathlib import Path

from ten_problems import HERE, PROBLEMS, Problem

PICTURES = HERE.parents[1] / "docs" / "gallery"


def picture_of(problem: Problem) -> Path:
    """Where the picture of a problem's plan is."""
    return PICTURES / f"{problem.name}.svg"


def main() -> None:
    """Write all of them, in a layout that is the same on every machine."""
    for problem in PROBLEMS:
        problem.plan(sizes=problem.drawn).draw(picture_of(problem))
        print(picture_of(problem))


if __name__ == "__main__":
    main()
