"""A process that asks a user's reward and waits to be killed, while the function is idle or hangs."""

import sys
import threading
import time

from memagent_batch.apps.training.rewards import Rewarder
from memagent_batch.config.agent import Extraction
from memagent_batch.config.job import RolloutConfig


def main() -> None:
    settings = RolloutConfig(reward="tests.training.rewards_of_mine:hangs", reward_timeout_seconds=600)
    rewarder = Rewarder(settings, extraction=Extraction.AUTO)
    rewarder("good", ["a"])
    if sys.argv[1] == "hangs":
        threading.Thread(target=rewarder, args=("hang", ["a"]), daemon=True).start()
    print("ready", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
