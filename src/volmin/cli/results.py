"""Tables of results on the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from volmin.cli.terminal import console
from volmin.experiments import render
from volmin.experiments.render import CellText
from volmin.experiments.tables import ResultTable


def show_table(table: ResultTable) -> None:
    """Print a table of results, data set by data set."""
    shown = console()
    shown.print(f"{render.caption(table)}.", style="bold", soft_wrap=True)
    for dataset in table.filled_datasets:
        shown.print(result_table(table, dataset))
    shown.print()


def result_table(table: ResultTable, dataset: str) -> Table:
    """The results on one data set; below each number, in grey, the paper's and the difference."""
    # Four columns of mean, deviation and seeds just fit 80 characters; a narrower terminal would truncate numbers.
    view = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    view.add_column(escape(dataset), header_style="bold", no_wrap=True)
    for noise in render.columns(table, dataset):
        view.add_column(noise, header_style="dim", justify="right", no_wrap=True)
    second_line = any(cell.paper for cell in table.cells if cell.dataset == dataset)
    for label, cells in render.texts(table, dataset).items():
        view.add_row(escape(label), *(_cell(cell, second_line) for cell in cells))
    return view


def _cell(cell: CellText, second_line: bool) -> str:
    number = cell.ours.replace(" ± ", "±").removesuffix(render.WARNED)
    # The mark takes the place of the space, so that a full table still fits.
    space = render.WARNED if cell.ours.endswith(render.WARNED) else " "
    number = f"[bold green]{number}[/bold green]" if cell.best else number
    ours = f"{number}{space}({cell.seeds})" if cell.ours else "·"
    # The paper's deviation is left out: four columns of it do not fit a terminal.
    paper = f"{cell.paper.partition(' ± ')[0]} {cell.difference}".rstrip()
    return f"{ours}\n[dim]{paper}[/dim]" if second_line else ours
