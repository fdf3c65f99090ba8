"""Follows the MongoDB collections of an application through switches of dbcontroller.

What it guarantees is in README.md, and the protocol in docs/application.md.
"""
from ._app import App, Place, Where, connect
from ._controllers import ControllerError
from ._errors import MovedError, NotWrittenError, UnknownOutcomeError

__all__ = [
    "App", "ControllerError", "MovedError", "NotWrittenError", "Place", "UnknownOutcomeError", "Where", "connect",
]
