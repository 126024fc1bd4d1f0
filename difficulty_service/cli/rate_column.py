"""The column of a progress bar that says how fast it goes, the trainer's too."""

from rich.progress import ProgressColumn, Task
from rich.text import Text


class RateColumn(ProgressColumn):
    """Images or samples per second, over the last half minute."""

    def render(self, task: Task) -> Text:
        """The rate, or a dash before the first batch."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "-/s")
