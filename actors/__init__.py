"""The worker side, started as `dramatiq actors`: importing this package declares the actors and connects to nothing."""

import dramatiq

from actors.broker import DetachBroker

detach_broker = DetachBroker()
dramatiq.set_broker(detach_broker)

from actors import alert, detach, process  # noqa: E402 - the actors need the broker to be set

detach_broker.add_middleware(process.WorkerProcess())

__all__ = ["alert", "detach", "detach_broker", "process"]
