"""``volmin predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from volmin.cli.encoders import ImageEncoder, TextEncoder


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    new: Annotated[
        Path,
        typer.Argument(
            help="New rows: a table with the columns of the run's; a folder of images, an image, or a table of their "
            "paths; or an .npy or .npz file."
        ),
    ],
    text_encoder: TextEncoder = None,
    image_encoder: ImageEncoder = None,
    out: Annotated[Path, typer.Option(help="File to write, .csv or .parquet.")] = Path("predictions.csv"),
) -> None:
    """Predict the labels of new rows with the classifier of a finished run.

    The output has the columns of NEW and two more: predicted, the most probable clean label, and probability, the
    probability that the classifier gives it.
    """
    from volmin.cli import encoders
    from volmin.cli.progress import TaskProgress
    from volmin.cli.terminal import console, plain_table, say
    from volmin.experiments.predictions import PREDICTED, predict_file
    from volmin.experiments.predictor import load_run
    from volmin.formatting import terminal_safe

    with TaskProgress() as progress:
        trained = load_run(
            run,
            text_encoder=encoders.text_encoder(text_encoder),
            image_encoder=encoders.image_encoder(image_encoder),
        )
        found = predict_file(trained, new, out, progress)
    counts = found[PREDICTED].drop_nulls().value_counts(sort=True)
    table = plain_table("predicted", "rows", "share", wrap="predicted")
    for label, count in counts.head(20).iter_rows():
        table.add_row(terminal_safe(str(label)), f"{count:,}", f"{count / found.height:.1%}")
    console().print(table)
    if counts.height > 20:
        say(f"and {counts.height - 20} more labels")
    say(f"{found.height:,} rows written to {out}")
