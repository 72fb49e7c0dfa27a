"""The time that a phase takes."""

import time


class Timer:
    """Seconds since it was made: of the clock, and of this process on a core."""

    def __init__(self) -> None:
        self._began, self._used = time.monotonic(), time.process_time()

    def figures(self, name: str, *, per: float = 1, unit: str = "") -> dict[str, float]:
        """Both, each over `per`; `name` begins their names, `unit` ends them."""
        seconds, used = time.monotonic() - self._began, time.process_time() - self._used
        return {f"{name}_seconds{unit}": round(seconds / per, 3), f"{name}_cpu_seconds{unit}": round(used / per, 3)}
