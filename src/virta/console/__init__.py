"""The web console: a log, live, in the browser.

    app = virta.console.application(log)      # an ASGI application, for any server

It works over the public interface of a log only, so it shows a directory and a broker alike.
"""

from virta.console.access import Access, OpenAccess, ReadOnly, Visitor
from virta.console.application import application

__all__ = ["Access", "OpenAccess", "ReadOnly", "Visitor", "application"]
